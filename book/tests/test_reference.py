"""The reference of the Python API names everything that is public.

That each signature has its types, mypy asks of the package.
"""

import importlib
import pkgutil
import re
import types
from typing import Any, TypeVar

import regions
from torch_openreg import openreg

PAGE = regions.ROOT / "book" / "reference" / "python.md"


def documented() -> set[str]:
    module, names = "", set()
    for line in PAGE.read_text("utf-8").splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"\.\. auto\w+:: (\S+)", line):
            names.add(f"{module}.{found[1]}")
    return names


def public(module: types.ModuleType, of: str) -> dict[str, Any]:
    """What has a name in the module and comes from `of`, or from below it."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith(of)
        and not isinstance(value, TypeVar)
    }


def every_name() -> dict[str, Any]:
    """Those of torch.openreg, and what a part of it keeps to itself."""
    shared = public(openreg, "torch_openreg.")
    names = {f"torch.openreg.{name}": value for name, value in shared.items()}
    for _, part, _ in pkgutil.iter_modules(openreg.__path__):
        module = importlib.import_module(f"torch.openreg.{part}")
        for name, value in public(module, module.__name__).items():
            if shared.get(name) is not value and not part.startswith("_"):
                names[f"torch.openreg.{part}.{name}"] = value
    return names


DATA = {
    "torch.openreg.OutOfMemoryError",  # PyTorch's own
    "torch.openreg.default_generators",
    "torch_openreg.cmake_prefix_path",
}


def test_every_public_name_is_documented() -> None:
    assert documented() == every_name().keys() | DATA


def test_every_public_name_says_what_it_does() -> None:
    for name, value in every_name().items():
        assert re.match(r"[A-Z].*\.", value.__doc__ or ""), name
