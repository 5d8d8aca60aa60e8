"""The tables of book/chapters/frontend.md."""

import re
from collections.abc import Iterable
from pathlib import Path

from rows import Row, rows
from tables.common import of_rows, table


def lookups() -> str:
    """What PyTorch looks up by name in the module of a device."""
    import torch

    def seen(row: Row) -> str:
        said = f"``{row.without}``{{.said}} " * (": " in row.without)
        return f"{row.use[0].upper()}{row.use[1:]}: {said}{row.means}"

    return of_rows(
        "frontend",
        lacks=lambda row: (
            "" if hasattr(torch.openreg, row.key) else ", which openreg lacks"
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
    import torch

    root = Path(torch.__file__).parent
    files = (root / folder for folder in ("distributed", "_dynamo"))
    found = find_lookups(file for f in files for file in f.rglob("*.py"))
    known = {lookup.key for lookup in rows("frontend")}
    body = (
        (
            f"`{name}`",
            f"`torch/{users[0].relative_to(root)}`"
            + f" and {len(users) - 1} more" * (len(users) > 1),
            "yes" if hasattr(torch.openreg, name) else "not yet",
        )
        for name, users in sorted(found.items())
        if name not in known
    )
    return table(("Name", "Who looks it up", "`torch.openreg` has it"), body)


def generated_methods() -> str:
    """What generate_methods_for_privateuse1_backend has added, and to whom."""
    import torch

    classes = (
        torch.Tensor,
        torch.nn.Module,
        torch.nn.utils.rnn.PackedSequence,
        torch.UntypedStorage,
        torch.TypedStorage,
    )
    meanings = {
        "openreg": "`.openreg(device=None)` copies to the device",
        "is_openreg": "`.is_openreg` tells whether it is there",
    }
    body = (
        (
            f"`torch.{kind.__qualname__}`"
            if kind.__module__ == "torch"
            else f"`{kind.__module__}.{kind.__qualname__}`",
            *("yes" if hasattr(kind, name) else "no" for name in meanings),
        )
        for kind in classes
    )
    return table(("Class", *meanings.values()), body)
