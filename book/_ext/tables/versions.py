"""The tables of book/about/versions.md, and the record they are made from.

`note_passed`, called after every test has passed, writes down the installed
PyTorch and its headers; `look`, given wheels, which of them had what.
"""

from __future__ import annotations

import datetime
import json
import platform
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tables.common import table
from tables.interfaces import MACROS, macro
from tables.virtuals import INTERFACES, include_folder, methods

READS = ("book/_ext/tables/versions.json",)

FILE = Path(__file__).with_suffix(".json")
Headers = dict[str, dict[str, str]]


class Milestone(NamedTuple):
    """A file of PyTorch's that has a text since a backend can do something."""

    can: str
    page: str
    file: str  # below torch
    text: str


UTILS = "utils/backend_registration.py"
MILESTONES = [
    Milestone(
        "give the key its own name",
        "frontend",
        UTILS,
        "def rename_privateuse1_backend(",
    ),
    Milestone(
        "bring a device module",
        "frontend",
        "__init__.py",
        "def _register_device_module(",
    ),
    Milestone(
        "get methods such as `x.openreg()`",
        "frontend",
        UTILS,
        "def generate_methods_for_privateuse1_backend(",
    ),
    Milestone(
        "register hooks instead of patching the places that need them",
        "hooks",
        "include/ATen/detail/PrivateUse1HooksInterface.h",
        "RegisterPrivateUse1HooksInterface(",
    ),
    Milestone(
        "take part in autocast",
        "amp",
        "include/c10/core/DispatchKey.h",
        "AutocastPrivateUse1",
    ),
    Milestone(
        "scale gradients with a class that names no device",
        "amp",
        "amp/grad_scaler.py",
        "class GradScaler",
    ),
    Milestone(
        "be loaded by `import torch`",
        "autoload",
        "__init__.py",
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
    ),
    Milestone(
        "be used through `torch.accelerator`, which names no device",
        "accelerator",
        "accelerator/__init__.py",
        "def current_accelerator(",
    ),
    Milestone(
        "report its memory through `torch.accelerator`, too",
        "memory",
        "accelerator/memory.py",
        "def memory_stats(",
    ),
    Milestone(
        "capture graphs",
        "",
        "include/ATen/core/GraphImplInterface.h",
        "GraphImplRegistry",
    ),
    Milestone(
        "feed the profiler natively",
        "",
        "include/torch/csrc/profiler/standalone/privateuse1_profiler.h",
        "REGISTER_PRIVATEUSE1_PROFILER",
    ),
]


def record() -> dict[str, Any]:
    return json.loads(FILE.read_text("utf-8"))


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
    rows = sorted(
        record()["passed"], key=lambda r: as_number(r["torch"]), reverse=True
    )
    return table(
        ("PyTorch", "Python", "On"),
        (
            (
                row["torch"]
                + (" (installed)" if row["torch"] == pytorch() else ""),
                row["python"],
                row["date"],
            )
            for row in rows
        ),
    )


def versions_changes() -> str:
    """How the installed headers differ from those that were recorded."""
    last = record()
    changed = differences(last["headers"], snapshot())
    count = sum(map(len, last["headers"].values()))
    known = f"{count} declarations of PyTorch {last['headers_of']}"
    if not changed:
        return f"Of the {known}, PyTorch {pytorch()} has changed none."
    rows = (
        (
            part,
            f"`{name}`",
            f"`{old}`" if old else "",
            f"`{now}`" if now else "",
        )
        for part, name, old, now in changed
    )
    return f"Of the {known}, these are others in {pytorch()}:\n\n" + table(
        ("Part", "Name", "Before", "Now"), rows
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
    return table(
        ("Since", "What a backend can do", "Here"),
        (
            (
                since(has[row.file + ": " + row.text]),
                row.can,
                f"[{row.page}](chapters/{row.page}.md)" if row.page else "next",
            )
            for row in MILESTONES
        ),
    )


def method_history() -> str:
    """The methods that an older release lacks, by the first one with them."""
    methods_in, looked = record()["methods"], record()["looked_at"]
    oldest = min(looked, key=as_number)
    rows = [
        (min(releases, key=as_number), part, name)
        for part, names in methods_in.items()
        for name, releases in names.items()
        if oldest not in releases
    ]
    groups: dict[tuple[str, str], list[str]] = {}
    for first, part, name in sorted(
        rows, key=lambda r: (as_number(r[0]), r[1])
    ):
        groups.setdefault((first, part), []).append(f"`{name}`")
    return f"Searched: {', '.join(looked)}.\n\n" + table(
        ("Since", "Of", "Methods"),
        (
            (since([first]), part, ", ".join(names))
            for (first, part), names in groups.items()
        ),
    )


def save(now: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


def note_passed() -> None:
    """Writes the installed release and its headers into the record."""
    now = record()
    entry = {
        "torch": pytorch(),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }
    others = [row for row in now["passed"] if row["torch"] != pytorch()]
    now["passed"] = [*others, entry]
    now["headers_of"], now["headers"] = pytorch(), snapshot()
    save(now)


def note_looked(name: str, root: Path, now: dict[str, Any]) -> None:
    """Adds what a release has, unpacked at `root`, the folder of torch."""
    now["looked_at"] = sorted({*now["looked_at"], name}, key=as_number)

    def add(place: dict[str, list[str]], key: str, there: bool) -> None:
        releases = {*place.get(key, [])} - {name} | ({name} if there else set())
        place[key] = sorted(releases, key=as_number)

    for row in MILESTONES:
        path = root / row.file
        there = path.exists() and row.text in path.read_text("utf-8")
        add(now["milestones"], f"{row.file}: {row.text}", there)
    for key in INTERFACES:
        place = now["methods"].setdefault(key, {})
        there = methods(key, root / "include", missing_ok=True)
        for method in methods(key):
            add(place, method, method in there)


def look(*wheels: str) -> None:
    """Looks into wheels, and at the installed release."""
    now = record()
    note_looked(pytorch(), include_folder().parent, now)
    files = {row.file for row in MILESTONES} | {
        f"include/{header}"
        for interface in INTERFACES.values()
        for header, _ in interface.classes
    }
    for wheel in wheels:
        with (
            zipfile.ZipFile(wheel) as archive,
            tempfile.TemporaryDirectory() as folder,
        ):
            names = {f"torch/{file}" for file in files}
            for name in names & set(archive.namelist()):
                archive.extract(name, folder)
            release = Path(wheel).name.split("-")[1]
            note_looked(release, Path(folder) / "torch", now)
    save(now)
