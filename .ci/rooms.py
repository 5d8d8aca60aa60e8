"""The rooms of the house, and how many lines of code each may have.

`nox -s lint` prints what they have, and fails above a limit, which only a
decision record raises: book/about/decisions/0012-rooms-count-code.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BACKEND, BOOK = ROOT / "backend", ROOT / "book"

# C++ with its headers, and Python; a room inside of another is not of it.
ROOMS = {
    "backend/device": 3000,
    "backend/device/graph": 350,
    "backend/csrc/graph": 550,
    "backend/csrc/runtime": 2600,
    "backend/csrc/aten": 3200,
    "backend/csrc/amp": 100,
    "backend/csrc/distributed": 1710,
    "backend/csrc/minimal": 250,
    "backend/csrc/profiler": 600,
    "backend/kit": 900,
    "backend/kit/torch_device_kit/conformance": 1310,
    "backend/new": 330,
    "backend/new/package": 300,
    "backend/new/steps": 300,
    "backend/torch_openreg": 1400,
    "backend/torch_openreg/csrc": 650,
    "backend/torch_openreg/inductor": 700,
    "book/_ext": 3300,
}
BOOK_WITH_TESTS = 5840  # those in a browser aside
MINIMAL = 2500  # the minimal path, with all that it includes
LONGEST = 500  # all lines of a file, unless it is a test, or a reference


def cpp_files() -> list[Path]:
    paths = BACKEND.rglob("*")
    return sorted(p for p in paths if p.suffix in (".c", ".cpp", ".h"))


def python_files() -> list[Path]:
    top = [*ROOT.glob("*.py"), *(ROOT / ".ci").glob("*.py")]
    return [*top, *BACKEND.rglob("*.py"), *BOOK.rglob("*.py")]


def count_code(path: Path) -> int:
    """Lines of C, C++ or Python that hold more than a comment."""
    text, comment = path.read_text(), "#"
    if path.suffix != ".py":
        comment = "//"
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith(comment) for line in lines)


def minimal_path() -> set[Path]:
    """What CMake lists for the minimal build, and all that this includes."""
    cmake = (BACKEND / "CMakeLists.txt").read_text()
    (listed,) = re.findall(r"set\(minimal_sources\s([^)]+)\)", cmake)
    left = [BACKEND / name for name in listed.split()]
    found: set[Path] = set()
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            names = re.findall(r'^#include "(.+)"', path.read_text(), re.M)
            left += [BACKEND / name for name in names]
    return found


def count() -> Iterator[tuple[str, int, int]]:
    """What is counted, what it has and what it may have."""
    files = [*cpp_files(), *python_files()]
    lines_of = dict.fromkeys(ROOMS, 0)
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if rooms := [room for room in ROOMS if name.startswith(room)]:
            lines_of[max(rooms, key=len)] += count_code(path)
    for room, most in ROOMS.items():
        yield room, lines_of[room], most
    both = [*(BOOK / "_ext").rglob("*.py"), *(BOOK / "tests").glob("*.py")]
    counted = sum(map(count_code, both))
    yield "book/_ext and its tests", counted, BOOK_WITH_TESTS
    minimal = sum(map(count_code, minimal_path()))
    yield "the minimal path", minimal, MINIMAL
    reference = BACKEND / "device" / "openreg.h"
    lines = {
        path: path.read_text().count("\n")
        for path in files
        if BACKEND / "tests" not in path.parents and path != reference
    }
    longest = max(lines, key=lambda path: lines[path])
    yield f"{longest.relative_to(ROOT)}", lines[longest], LONGEST
