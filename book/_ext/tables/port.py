"""The tables of book/howto/port.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tables.common import ROOT, code, table

READS = ("pyproject.toml", "backend/**")


class Name(NamedTuple):
    what: str
    here: str  # how it is spelt in this project
    first: str  # the file below the root that says it first
    pattern: str  # what counts as a use of it


NAMES = [
    Name(
        "the device, as in `x.to(...)`, and its module below `torch`",
        "openreg",
        "backend/torch_openreg/__init__.py",
        r'(?<!\w)torch\.openreg\b|"openreg[":]',
    ),
    Name(
        "the package, and the entry point",
        "torch_openreg",
        "pyproject.toml",
        r"(?<!lib)\btorch_openreg\b",
    ),
    Name(
        "CMake's targets, which name the libraries",
        "libopenreg.so libtorch_openreg.so",
        "backend/CMakeLists.txt",
        r"\blib(?:torch_)?openreg\b|\((?:torch_)?openreg (?:SHARED|PRIVATE)",
    ),
    Name(
        "the namespace of the C++ code",
        "openreg::",
        "backend/csrc/runtime/device.h",
        r"\bnamespace openreg\b|\bopenreg::",
    ),
    Name(
        "the namespace of operators of your own",
        "torch.ops.openreg",
        "backend/csrc/aten/custom.cpp",
        r"TORCH_LIBRARY\w*\(openreg\b|torch\.ops\.openreg\b",
    ),
    Name(
        "macros and environment variables",
        "OPENREG_",
        "backend/csrc/runtime/device.h",
        r"\bOPENREG_\w+",
    ),
    Name(
        "the header of the device's C API",
        "device/openreg.h",
        "backend/device/openreg.h",
        r"device/openreg\.h",
    ),
    Name(
        "the name that properties report",
        "OpenReg",
        "backend/device/device.cpp",
        r"\bOpenReg\b",
    ),
]

# What PyTorch, Python or the loader look for, letter by letter.
FIXED = {
    r"\w*PrivateUse1\w*": "dispatch keys, device type, hooks: C++",
    r"\w*privateuse1\w*": "PyTorch's functions and modules for this key",
    r"REGISTER_PRIVATEUSE1\w*": "macros of PyTorch",
    r"torch\.backends": "the group of the entry point",
    r"_autoload": "the function that entry points call by convention",
    r"TORCH_DEVICE_BACKEND_AUTOLOAD": "PyTorch's switch",
    r"\$ORIGIN": "the loader's word for an object's own folder",
    r"\bor[A-Z]\w+": "the emulator's calls, until your runtime replaces them",
}


@cache
def tree() -> dict[str, str]:
    """What the recipe of the page copies: path below the root -> text."""
    files = [ROOT / "pyproject.toml", *(ROOT / "backend").rglob("*")]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }


def users(pattern: str) -> dict[str, int]:
    """The files that use a name, each with how often."""
    found = {p: len(re.findall(pattern, t)) for p, t in tree().items()}
    return {path: count for path, count in found.items() if count}


def names_to_change() -> str:
    """Every name of the backend, and how many files of the tree use it."""

    def row(name: Name) -> tuple[str, ...]:
        found = users(name.pattern)
        uses = f"{sum(found.values())} in {len(found)} files"
        return name.what, code(name.here.split()), f"`{name.first}`", uses

    return table(("What", "Here", "See", "Uses"), map(row, NAMES))


def most_used(pattern: str, limit: int) -> Iterator[str]:
    found = Counter(w for t in tree().values() for w in re.findall(pattern, t))
    yield from (word for word, _ in found.most_common(limit))


def names_to_keep() -> str:
    """What must stay as it is, with the words of the tree that are meant."""
    rows = (
        (why, code(most_used(pattern, 5)), f"{len(users(pattern))} files")
        for pattern, why in FIXED.items()
    )
    return table(("What", "Here, the most used first", "In"), rows)
