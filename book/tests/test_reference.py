"""The reference of the Python API names everything that is public."""

import importlib
import inspect
import pkgutil
import re
import types
from typing import Any, TypeVar

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
        and not isinstance(value, types.ModuleType | TypeVar)
        and (
            getattr(value, "__module__", "").startswith("torch_openreg.")
            or attribute == "default_generators"
        )
    }


def every_name() -> set[str]:
    """Those of torch.openreg, and what a part of it keeps to itself."""
    names = public(torch.openreg, "torch.openreg")
    for _, part, _ in pkgutil.iter_modules(torch.openreg.__path__):
        if not part.startswith("_"):
            module = importlib.import_module(f"torch.openreg.{part}")
            names |= {
                name
                for name in public(module, f"torch.openreg.{part}")
                if value_of(name).__module__ == module.__name__
                and value_of(name)
                is not getattr(torch.openreg, name.split(".")[-1], None)
            }
    return names


def value_of(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


DATA = {
    "torch.openreg.OutOfMemoryError",  # PyTorch's own
    "torch.openreg.default_generators",
    "torch_openreg.cmake_prefix_path",
}


def test_every_public_name_is_documented() -> None:
    assert documented() == every_name() | DATA


def test_every_public_name_says_what_it_does() -> None:
    for name in every_name() - DATA:
        assert re.match(r"[A-Z].*\.", value_of(name).__doc__ or ""), name


def test_every_signature_has_its_types() -> None:
    for name in every_name() - DATA:
        value = value_of(name)
        where = value.__init__ if isinstance(value, type) else value
        if value.__module__.startswith("torch_openreg."):
            signature = inspect.signature(where)
            untyped = [
                parameter.name
                for parameter in signature.parameters.values()
                if parameter.annotation is parameter.empty
                and parameter.name not in ("self", "args", "kwargs")
            ]
            assert not untyped, name
            if where is value:
                assert signature.return_annotation is not signature.empty, name
