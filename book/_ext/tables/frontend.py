"""The tables of book/chapters/frontend.md."""

import re
from collections.abc import Iterable
from pathlib import Path

import torch

from rows import Row, rows
from tables.common import of_rows, said, table
from torch_openreg import openreg


def lookups() -> str:
    """What PyTorch looks up by name in the module of a device."""

    def seen(row: Row) -> str:
        message = f"{said(row.without)} " * (": " in row.without)
        return f"{row.use[0].upper()}{row.use[1:]}: {message}{row.means}"

    return of_rows(
        "frontend",
        lacks=lambda row: (
            "" if hasattr(openreg, row.key) else ", which openreg lacks"
        ),
        who=lambda row: row.files.replace("_", r"\_").replace(" ", "<br>"),
        seen=seen,
    )


# How PyTorch's files name the module of a device, and use a name of it.
HOLDER = (
    r"(?:\bdevice_mod(?:ule)?|custom_device_mod|device_handle|self\.__backend"
    r"|privateuse1_backend_module|lambda m: (?:list\(range\()?m"
    r"|getattr\(\s*torch, [\w.]+\)|get_device_module\([\w.]*\))"
)
LOOKED_UP = re.compile(
    rf"{HOLDER}\.([A-Za-z_]\w*)|(?:has|get)attr\(\s*{HOLDER}, [\"'](\w+)"
)


def find_lookups(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Name -> the PyTorch files that look it up in a device's module."""
    found: dict[str, list[Path]] = {}
    for file in sorted(files):
        for names in LOOKED_UP.findall(file.read_text("utf-8")):
            users = found.setdefault("".join(names), [])
            if file not in users:
                users.append(file)
    return found


def further_lookups() -> str:
    """The names that torch.distributed and torch.compile add to those."""
    root = Path(torch.__file__).parent
    files = (root / folder for folder in ("distributed", "_dynamo"))
    found = find_lookups(file for f in files for file in f.rglob("*.py"))
    known = {lookup.key for lookup in rows("frontend")}
    body = (
        (
            f"`{name}`",
            f"`torch/{users[0].relative_to(root)}`"
            + f" and {len(users) - 1} more" * (len(users) > 1),
            "yes" if hasattr(openreg, name) else "not yet",
        )
        for name, users in sorted(found.items())
        if name not in known
    )
    return table(("Name", "Who looks it up", "`torch.openreg` has it"), body)
