"""The tables of book/chapters/build.md."""

import re
import subprocess
from pathlib import Path

from rows import load, rows
from tables.common import code, table


def commands(which: str) -> str:
    """What backend/tests/test_build_install.py runs for this."""
    return "\n".join(("```sh", *load("build")[which], "```"))


def shared_objects() -> dict[Path, str]:
    """The four, from Python down to the device, and what each is for."""
    from torch_openreg import _C

    stub = Path(_C.__file__)
    return {
        stub.parent / "lib" / row.file if row.file else stub: row.duty
        for row in rows("build.objects")
    }


def needs(path: Path, tag: str = "NEEDED") -> list[str]:
    """What an object's dynamic section says under a tag."""
    said = subprocess.check_output(["readelf", "-dW", path], text=True)
    return re.findall(rf"\({tag}\).*\[(.+)\]", said)


def objects() -> str:
    """The shared objects, each with what the loader must find for it."""
    ours = {path.name for path in shared_objects()}

    def row(path: Path, duty: str) -> tuple[str, ...]:
        found = needs(path)
        theirs = [n for n in found if re.match(r"lib(torch|c10)", n)]
        return (
            f"`{path.name.split('.')[0]}.so`",
            duty,
            code(n for n in found if n in ours) or "none",
            code(needs(path, "RUNPATH")),
            code(n for n in theirs if n not in ours) or "none",
        )

    head = "Object", "Duty", "Needs of ours", "Looks in"
    body = (row(*part) for part in shared_objects().items())
    return table((*head, "Needs of PyTorch"), body)
