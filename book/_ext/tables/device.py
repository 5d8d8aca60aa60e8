"""The tables of book/chapters/device.md."""

import ast
import re
from typing import NamedTuple

from regions import ROOT
from tables.common import first_sentence, table
from tables.headers import entries

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
    text, bindings = ((ROOT / path).read_text("utf-8") for path in READS[:2])
    bound = re.findall(r'm\.def\(\s*"(\w+)",(.*?)\);', bindings, re.S)
    callers = python_callers()
    functions = []
    for entry in entries(text):
        # Of those that share a comment, the first; no macro, nor what raises.
        for name in re.findall(
            r"^[^\[#{]*?(\w+)\(", "".join(entry.declared[:1])
        ):
            calls = rf"[&<]{name}\b"
            binding = next(
                (b for b, code in bound if re.search(calls, code)), ""
            )
            meaning = first_sentence(entry.comment)
            by = callers.get(binding, [])
            functions.append(DeviceFunction(name, binding, by, meaning))
    return functions


def device_layers() -> str:
    """Each C++ device function with its binding and its Python names."""
    body = (
        (
            f"`{f.name}`",
            f"`_C.{f.binding}`" if f.binding else "none",
            ", ".join(f"`{name}`" for name in f.callers) or "internal",
            f.meaning,
        )
        for f in device_functions()
    )
    head = "C++", "Binding", "`torch.openreg`"
    return table((*head, "What it does"), body)
