"""Writes what book/about/versions.md shows: book/rows/versions.json.

Without arguments, after every test has passed: the installed PyTorch and its
headers. With wheels of PyTorch: which of them have what.
"""

import datetime
import json
import platform
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "book" / "_ext"))
import rows
from tables import versions
from tables.virtuals import INTERFACES, include_folder, methods


def save(now: dict[str, Any]) -> None:
    path = rows.FOLDER / "versions.json"
    path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


def note_passed() -> None:
    """Writes the installed release and its headers into the record."""
    now = versions.record()
    entry = {
        "torch": versions.pytorch(),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }
    others = [
        row for row in now["passed"] if row["torch"] != versions.pytorch()
    ]
    now["passed"] = [*others, entry]
    now["headers_of"], now["headers"] = versions.pytorch(), versions.snapshot()
    save(now)


def note_looked(name: str, root: Path, now: dict[str, Any]) -> None:
    """Adds what a release has, unpacked at `root`, the folder of torch."""
    now["looked_at"] = sorted({*now["looked_at"], name}, key=versions.as_number)

    def add(place: dict[str, list[str]], key: str, there: bool) -> None:
        releases = {*place.get(key, [])} - {name} | ({name} if there else set())
        place[key] = sorted(releases, key=versions.as_number)

    for row in versions.MILESTONES:
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
    now = versions.record()
    note_looked(versions.pytorch(), include_folder().parent, now)
    files = {row.file for row in versions.MILESTONES} | {
        f"include/{header}"
        for interface in INTERFACES.values()
        for header, _ in map(str.split, interface.classes)
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


if __name__ == "__main__":
    look(*sys.argv[1:]) if sys.argv[1:] else note_passed()
