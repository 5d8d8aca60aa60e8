"""The reference of the Python API names everything that is public."""

import re
import types

import torch

import regions

PAGE = regions.ROOT / "book" / "reference" / "python.md"


def documented() -> set[str]:
    module, names = "", set()
    for line in PAGE.read_text("utf-8").splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"\.\. auto\w+:: (\S+)", line):
            names.add(f"{module}.{found[1]}")
    return names


def public(module: types.ModuleType, name: str) -> set[str]:
    """What the module defines; its submodules speak for themselves."""
    return {
        f"{name}.{attribute}"
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        and not isinstance(value, types.ModuleType)
        and (
            getattr(value, "__module__", "").startswith("torch_openreg.")
            or attribute == "default_generators"
        )
    }


def test_every_public_name_is_documented() -> None:
    names = public(torch.openreg, "torch.openreg")
    names |= public(torch.openreg.fallback, "torch.openreg.fallback")
    assert documented() == names


def test_every_public_name_says_what_it_does() -> None:
    for module in (torch.openreg, torch.openreg.fallback):
        for name in public(module, ""):
            value = getattr(module, name.removeprefix("."))
            if name != ".default_generators":
                assert re.match(r"[A-Z].*\.", value.__doc__ or ""), name
