"""Writes what book/about/versions.md shows: book/rows/versions.json.

Without arguments, after `nox -s tests`: what came of it on the installed
PyTorch, and its headers. With `headers`: these alone. With wheels of PyTorch:
which of them have what.
"""

import datetime
import json
import platform
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

from torch import version

sys.path.append(str(Path(__file__).parents[1] / "book" / "_ext"))
import releases
import rows
import suite
from tables import versions
from tables.interfaces import MACROS, macro
from tables.virtuals import INTERFACES, include_folder, methods

Headers = dict[str, dict[str, str]]


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


def save(now: dict[str, Any]) -> None:
    path = rows.FOLDER / "versions.json"
    path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


def counts(report: Path) -> list[int]:
    """How many tests passed and were skipped, of a run in which none failed."""
    if not report.exists():
        sys.exit(f"There is no {report}: `nox -s tests` writes it, run whole")
    (run,) = xml.parse(report).getroot().iter("testsuite")
    tests, skipped, failures, errors = (
        int(run.attrib[name])
        for name in ("tests", "skipped", "failures", "errors")
    )
    if failed := failures + errors:
        sys.exit(f"{failed} tests have failed in {report}: all must pass")
    return [tests - skipped, skipped]


def note_ran() -> None:
    """Writes that every test of the installed release has passed."""
    now, torch = versions.record(), versions.pytorch()
    reports = releases.places(torch).build / "proof"
    modes = ("tests", *suite.OTHER_MODES)
    entry = {
        "torch": torch,
        "build": f"CUDA {cuda}" if (cuda := version.cuda) else "CPU",
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "ran": {mode: counts(reports / f"{mode}.xml") for mode in modes},
    }
    others = [row for row in now["passed"] if row["torch"] != torch]
    now["passed"] = [*others, entry]
    note_headers(now)
    save(now)


def note_headers(now: dict[str, Any]) -> None:
    """The book's release has them whole, any other what is not the same."""
    torch = versions.pytorch()
    if torch == releases.current()[0]:
        now["headers_of"], now["headers"] = torch, snapshot()
    else:
        now["later"][torch] = differences(now["headers"], snapshot())
    note_looked(torch, include_folder().parent, now)


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
        for method in {*methods(key), *place, *there}:
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


def main(*arguments: str) -> None:
    if not arguments:
        note_ran()
    elif arguments == ("headers",):
        now = versions.record()
        note_headers(now)
        save(now)
    else:
        look(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
