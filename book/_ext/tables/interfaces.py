"""The tables of book/reference/interfaces.md."""

import re

from regions import ROOT
from rows import Row, rows
from tables.common import code, of_rows, table
from tables.virtuals import (
    INTERFACES,
    default,
    include_folder,
    methods,
    overrides,
    provided,
)

READS = ("backend/**/*.cpp", "book/rows/*.toml")


def interface(name: str) -> str:
    """Every method of an interface, in the order of PyTorch's headers."""
    ours, theirs = overrides(name), provided(name)
    told = {row.key: row for row in said(name)}

    def row(method: str) -> tuple[str, ...]:
        by = "PyTorch's cache" if method in theirs else "not overridden"
        where = getattr(told[method], "region", "")
        return (
            f"**{method}**{told[method].mark}<br>`{every[method].signature}`",
            default(every[method]),
            f"`{ours[method]}`" if method in ours else by,
            f"[listing](#{where})" if where else told[method].ours,
        )

    every = methods(name)
    return table(("Method", "Left out, it ...", "Here", "How"), map(row, every))


def said(name: str) -> list[Row]:
    """What the book says of the methods of an interface, on other pages."""
    places = INTERFACES[name].rows
    return [row for place in places for row in rows(place)]


MACROS = {row.name: row.header for row in rows("interfaces.macro")}
REGISTERS = re.compile(
    r"^ *((?:C10_)?REGISTER_\w+|KERNEL_\w+|TORCH_LIBRARY\w*)\(", re.M
)


def macros_used(*folders: str) -> dict[str, set[str]]:
    """The macros that sources register with -> the files that do."""
    used: dict[str, set[str]] = {}
    for folder in folders:
        for path in sorted((ROOT / "backend" / folder).rglob("*.cpp")):
            for name in REGISTERS.findall(path.read_text("utf-8")):
                used.setdefault(name, set()).add(path.name)
    return used


def macro(name: str) -> str:
    """The definition's first line, such as `M(a, b)`; "" where it is gone."""
    path = include_folder() / MACROS[name]
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.search(rf"#define ({name}\([^)]*\))", text)
    return " ".join(found[1].split()) if found else ""


def interface_macros() -> str:
    """The macros that register, as PyTorch defines them."""
    used = macros_used("examples") | macros_used("csrc")
    return of_rows(
        "interfaces.macro",
        defined=lambda row: macro(row.name),
        used=lambda row: code(sorted(used[row.name])),
    )
