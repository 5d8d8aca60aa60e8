"""The example extension, compiled when its source has changed."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = Path(__file__).parents[1] / "examples" / "custom_tensor.cpp"


def load() -> str:
    """Makes torch.ops.custom_tensor; the library's path."""
    path = cpp_extension.load(
        name=SOURCE.stem,
        sources=[str(SOURCE)],
        extra_cflags=["-O1"],
        is_python_module=False,
    )
    assert torch.ops.custom_tensor.tile
    return path
