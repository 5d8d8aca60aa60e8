"""The tables of book/about/versions.md: what .ci/record_versions.py wrote."""

from typing import Any

from rows import as_number, pytorch, recorded, rows
from tables.common import chapter, of_rows, table

READS = ("book/rows/versions.json",)

MILESTONES = rows("versions.milestones")
OTHER_MODES = ("async", "blocking")


def record() -> dict[str, Any]:
    return recorded("versions")


def versions_passed() -> str:
    """What came of the last whole run on each release, newest first."""
    ran = sorted(record()["passed"], key=lambda r: as_number(r["torch"]))
    head = ("PyTorch", "Build", "Python", "On", "Passed", "Skipped")
    body = (
        (
            row["torch"] + " (installed)" * (row["torch"] == pytorch()),
            *(row[key] for key in ("build", "python", "date")),
            *(f"{count:,}" for count in row["ran"].get("tests", ())),
            *(f"{row['ran'][mode][0]:,}" for mode in OTHER_MODES if row["ran"]),
        )
        for row in reversed(ran)
    )
    return table((*head, *(f"in `{mode}`" for mode in OTHER_MODES)), body)


def versions_changes() -> str:
    """How the headers of other releases differ from those of the first."""
    last = record()
    count = sum(map(len, last["headers"].values()))
    known = f"Of the {count} declarations of PyTorch {last['headers_of']}"
    head = ("Part", "Name", "Before", "Now")
    return "\n\n".join(
        f"{known}, these are others in {release}:\n\n"
        + table(
            head,
            ([x, *(f"`{t}`" if t else "" for t in y)] for x, *y in changed),
        )
        for release, changed in last["later"].items()
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
