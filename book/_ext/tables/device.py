"""The tables of book/chapters/device.md."""

import ast
import re
from typing import NamedTuple

from regions import ROOT
from tables.common import first_sentence, table

MODULES = (
    "backend/torch_openreg/openreg/_lazy.py",
    "backend/torch_openreg/openreg/devices.py",
)
READS = (
    "backend/csrc/runtime/device.h",
    "backend/torch_openreg/csrc/bindings.cpp",
    *MODULES,
)


def python_callers() -> dict[str, list[str]]:
    """Binding -> the public names of torch.openreg whose code calls it."""
    callers: dict[str, list[str]] = {}
    texts = [(ROOT / module).read_text("utf-8") for module in MODULES]
    for node in ast.parse("".join(texts)).body:
        name = getattr(node, "name", "_")
        if name.startswith("_"):
            continue
        called = re.findall(r"\b_C\.(_\w+)", ast.unparse(node))
        for binding in dict.fromkeys(called):
            callers.setdefault(binding, []).append(name)
    return callers


class DeviceFunction(NamedTuple):
    name: str
    binding: str  # empty when Python does not see it
    callers: list[str]
    meaning: str


def device_functions() -> list[DeviceFunction]:
    """The rows of device.h, joined to bindings.cpp and to torch.openreg."""
    csrc = ROOT / "backend" / "csrc" / "runtime" / "device.h"
    bindings = ROOT / "backend" / "torch_openreg" / "csrc" / "bindings.cpp"
    bound = re.findall(
        r'm\.def\(\s*"(\w+)",(.*?)\);', bindings.read_text("utf-8"), re.S
    )
    callers = python_callers()
    functions = []
    for comment, name in re.findall(
        r"((?:^// .*\n)+)OPENREG_EXPORT [^;]*?\b(\w+)\([^;]*;",
        csrc.read_text("utf-8"),
        re.M,
    ):
        binding = next(
            (b for b, code in bound if re.search(rf"[&<]{name}\b", code)), ""
        )
        meaning = " ".join(comment.replace("// ", "").split())
        functions.append(
            DeviceFunction(
                name, binding, callers.get(binding, []), first_sentence(meaning)
            )
        )
    return functions


def device_layers() -> str:
    """Each C++ device function with its binding and its Python names."""
    return table(
        ("C++", "Binding", "`torch.openreg`", "What it does"),
        (
            (
                f"`{f.name}`",
                f"`_C.{f.binding}`" if f.binding else "none",
                ", ".join(f"`{name}`" for name in f.callers) or "internal",
                f.meaning,
            )
            for f in device_functions()
        ),
    )
