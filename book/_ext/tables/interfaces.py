"""The tables of book/reference/interfaces.md."""

from __future__ import annotations

import re
from typing import NamedTuple

from tables.common import ROOT, code, table
from tables.generator import GENERATOR_METHODS
from tables.guard import GUARD_METHODS
from tables.hooks import HOOKS_HIGH, HOOKS_LOW, HOOKS_OWN
from tables.memory import (
    ALLOCATOR_METHODS,
    CACHE_METHODS,
    HOST_METHODS,
)
from tables.virtuals import (
    default,
    include_folder,
    methods,
    overrides,
    provided,
)

READS = ("backend/csrc/**/*.cpp",)


class Said(NamedTuple):
    """What the book says of a method: where, or in a sentence, and its test."""

    where: str
    test: str


# An interface -> what is said of each of its methods.
SAID = {
    "hooks": {
        row.method: Said(f"[listing](#{row.region})", row.test)
        for row in (*HOOKS_HIGH, *HOOKS_LOW, *HOOKS_OWN)
    },
    "guard": {
        row.name: Said(f"[listing](#{row.region})", row.test)
        for row in GUARD_METHODS
    },
    "allocator": {
        row.name: Said(row.ours, row.test) for row in ALLOCATOR_METHODS
    },
    "host allocator": {
        row.name: Said(row.ours, row.test) for row in HOST_METHODS
    },
    "host cache": {row.name: Said(row.ours, row.test) for row in CACHE_METHODS},
    "generator": {
        row.name: Said(f"[listing](#{row.region})", row.test)
        for row in GENERATOR_METHODS
    },
}


def interface(key: str) -> str:
    """Every method of an interface, in the order of PyTorch's headers."""
    ours, theirs = overrides(key), provided(key)

    def row(name: str) -> tuple[str, ...]:
        said = SAID[key][name]
        by = "PyTorch's cache" if name in theirs else "not overridden"
        return (
            f"`{name}`",
            default(every[name]),
            f"`{ours[name]}`" if name in ours else by,
            said.where,
            f"`{said.test}`{{.said}}",
        )

    every = methods(key)
    head = "Method", "Left out, it ...", "Here", "How", "Test"
    return table(head, map(row, every))


def interface_hooks() -> str:
    return interface("hooks")


def interface_guard() -> str:
    return interface("guard")


def interface_allocator() -> str:
    return interface("allocator")


def interface_host_allocator() -> str:
    return interface("host allocator")


def interface_host_cache() -> str:
    return interface("host cache")


def interface_generator() -> str:
    return interface("generator")


# What registers something, and where PyTorch defines it.
MACROS = {
    "C10_REGISTER_GUARD_IMPL": "c10/core/impl/DeviceGuardImplInterface.h",
    "REGISTER_HOST_ALLOCATOR": "ATen/core/CachingHostAllocator.h",
    "REGISTER_PRIVATEUSE1_DISPATCH": "ATen/native/DispatchStub.h",
    "KERNEL_PRIVATEUSEONE": "ATen/autocast_mode.h",
    "TORCH_LIBRARY": "torch/library.h",
    "TORCH_LIBRARY_IMPL": "torch/library.h",
}
REGISTERS = re.compile(
    r"^ *((?:C10_)?REGISTER_\w+|KERNEL_\w+|TORCH_LIBRARY\w*)\(", re.M
)


def macros_used() -> dict[str, set[str]]:
    """The macros that our sources register with -> the files that do."""
    used: dict[str, set[str]] = {}
    for path in sorted((ROOT / "backend" / "csrc").rglob("*.cpp")):
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
    used = macros_used()
    return table(
        ("Macro", "Header", "Here"),
        (
            (f"`{macro(name)}`", f"`{header}`", code(sorted(used[name])))
            for name, header in MACROS.items()
        ),
    )
