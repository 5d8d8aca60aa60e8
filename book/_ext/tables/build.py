"""The tables of book/chapters/build.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from tables.common import code, table

INSTALL = [
    "python -m pip install --no-build-isolation .",
    "python -m pip install --no-build-isolation -e .",
]


def install() -> str:
    """The commands that backend/tests/test_build_install.py runs."""
    return "\n".join(("```sh", *INSTALL, "```"))


EXTENSION = [
    "cmake --fresh -S backend/examples/extension -B build/extension -G Ninja "
    "\\\n"
    '  -DCMAKE_PREFIX_PATH="$(python -P -c '
    "'import torch_openreg; print(torch_openreg.cmake_prefix_path)')\"",
    "cmake --build build/extension",
    "python -P backend/examples/extension/use.py "
    "build/extension/libextension.so",
]


def extension() -> str:
    """The commands that build somebody else's library; the same test."""
    return "\n".join(("```sh", *EXTENSION, "```"))


class SharedObject(NamedTuple):
    path: Path
    duty: str


def shared_objects() -> list[SharedObject]:
    """The four, from Python down to the device."""
    from torch_openreg import _C

    stub = Path(_C.__file__)
    lib = stub.parent / "lib"
    return [
        SharedObject(stub, "the door that Python opens"),
        SharedObject(
            lib / "libtorch_bindings.so",
            "the runtime's functions as Python objects",
        ),
        SharedObject(
            lib / "libtorch_openreg.so",
            "everything PyTorch needs from a backend",
        ),
        SharedObject(lib / "libopenreg.so", "the emulated accelerator"),
    ]


def needs(path: Path, tag: str = "NEEDED") -> list[str]:
    """What an object's dynamic section says under a tag."""
    said = subprocess.check_output(["readelf", "-dW", path], text=True)
    return re.findall(rf"\({tag}\).*\[(.+)\]", said)


def objects() -> str:
    """The shared objects, each with what the loader must find for it."""
    parts = shared_objects()
    ours = {part.path.name for part in parts}

    def row(part: SharedObject) -> tuple[str, ...]:
        found = needs(part.path)
        theirs = [n for n in found if re.match(r"lib(torch|c10)", n)]
        return (
            f"`{part.path.name.split('.')[0]}.so`",
            part.duty,
            code(n for n in found if n in ours) or "none",
            code(needs(part.path, "RUNPATH")),
            code(n for n in theirs if n not in ours) or "none",
        )

    head = "Object", "Duty", "Needs of ours", "Looks in"
    return table((*head, "Needs of PyTorch"), map(row, parts))
