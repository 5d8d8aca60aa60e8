"""The tables of book/about/versions.md: what .ci/record_versions.py wrote."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from rows import recorded, rows
from tables.common import chapter, of_rows, table
from tables.interfaces import MACROS, macro
from tables.virtuals import INTERFACES, methods

READS = ("book/rows/versions.json", "book/rows/interfaces.toml")

MILESTONES = rows("versions.milestones")
Headers = dict[str, dict[str, str]]


def record() -> dict[str, Any]:
    return recorded("versions")


def as_number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def pytorch() -> str:
    """The installed release, without what a build adds to it."""
    return version("torch").partition("+")[0]


def snapshot(include: Path | None = None) -> Headers:
    """What the book's interfaces look like: part -> name -> declaration."""
    found: Headers = {
        key: {
            name: method.signature + (" = 0" if method.default is None else "")
            for name, method in methods(key, include).items()
        }
        for key in INTERFACES
    }
    return found | {"macros": {name: macro(name) for name in MACROS}}


def differences(old: Headers, new: Headers) -> list[tuple[str, str, str, str]]:
    """(part, name, before, now) of whatever is not the same."""
    changed = []
    for part in old | new:
        before, now = old.get(part, {}), new.get(part, {})
        changed += [
            (part, name, before.get(name, ""), now.get(name, ""))
            for name in before | now
            if before.get(name, "") != now.get(name, "")
        ]
    return changed


def versions_passed() -> str:
    """The releases on which every test has passed, newest first."""
    passed = sorted(
        record()["passed"], key=lambda r: as_number(r["torch"]), reverse=True
    )
    for row in passed:
        row["torch"] += " (installed)" * (row["torch"] == pytorch())
    cells = (
        [row[key] for key in ("torch", "python", "date")] for row in passed
    )
    return table(("PyTorch", "Python", "On"), cells)


def versions_changes() -> str:
    """How the installed headers differ from those that were recorded."""
    last = record()
    changed = differences(last["headers"], snapshot())
    count = sum(map(len, last["headers"].values()))
    known = f"{count} declarations of PyTorch {last['headers_of']}"
    if not changed:
        return f"Of the {known}, PyTorch {pytorch()} has changed none."
    body = (
        (part, *(f"`{text}`" if text else "" for text in texts))
        for part, *texts in changed
    )
    return f"Of the {known}, these are others in {pytorch()}:\n\n" + table(
        ("Part", "Name", "Before", "Now"), body
    )


def since(releases: list[str]) -> str:
    """The first of the releases, in words that claim no more than was seen."""
    looked = sorted(record()["looked_at"], key=as_number)
    first = min(releases, key=as_number)
    name = first.rpartition(".")[0]
    if first == looked[0]:
        return f"{name} or before"
    before = looked[looked.index(first) - 1]
    near = as_number(first)[1] - as_number(before)[1] == 1
    return name if near else f"after {before}, by {first}"


def milestones() -> str:
    """What a backend can do, and since when."""
    has = record()["milestones"]
    return of_rows(
        "versions.milestones",
        since=lambda row: since(has[f"{row.file}: {row.text}"]),
        here=lambda row: chapter(row.page) or "not yet",
    )


def method_history() -> str:
    """The methods that an older release lacks, by the first one with them."""
    methods_in, looked = record()["methods"], record()["looked_at"]
    oldest = min(looked, key=as_number)
    added = [
        (min(releases, key=as_number), part, name)
        for part, names in methods_in.items()
        for name, releases in names.items()
        if oldest not in releases
    ]
    groups: dict[tuple[str, str], list[str]] = {}
    added.sort(key=lambda row: (as_number(row[0]), row[1]))
    for first, part, name in added:
        groups.setdefault((first, part), []).append(f"`{name}`")
    return f"Searched: {', '.join(looked)}.\n\n" + table(
        ("Since", "Of", "Methods"),
        ((since([x]), of, ", ".join(m)) for (x, of), m in groups.items()),
    )
