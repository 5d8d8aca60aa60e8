"""The dtypes that CUDA takes and the CPU's kernels lack, and what runs then.

PyTorch's operator database says which these are. The tests prove each row, and
a table of the book prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import NamedTuple

import torch

from _operators import ENTRIES

# What a dtype is computed in. `histc` alone lacks integers.
WIDER = {
    torch.complex32: torch.complex64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.uint8: torch.float64,
    torch.int8: torch.float64,
    torch.int16: torch.float64,
    torch.int32: torch.float64,
    torch.int64: torch.float64,
    torch.bool: torch.uint8,
}
# Their CPU kernels have the dtype, though the database does not say so.
KNOWN = [
    "diag",
    "nn.functional.batch_norm.without_cudnn",
    "nn.functional.conv*",
    "polygamma.*",
    "round.decimals*",
]
# No dtype of the CPU's kernel is complex: its sum adds up what is not NaN.
SUMS = {"nansum", "nanmean"}
# Their result is the kernel's own, down to the seed of its generator.
REFUSED = {
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
}


class Row(NamedTuple):
    entry: str
    dtype: torch.dtype
    wider: torch.dtype | None  # what it is computed in; None: it is refused


def rows() -> Iterator[Row]:
    for name, op in ENTRIES.items():
        for dtype in sorted(set(op.dtypesIfCUDA) - set(op.dtypes), key=str):
            if name in REFUSED:
                yield Row(name, dtype, None)
            elif any(fnmatch(name, known) for known in KNOWN):
                yield Row(name, dtype, dtype)
            elif name in SUMS:
                yield Row(name, dtype, WIDER.get(dtype, dtype))
            else:
                yield Row(name, dtype, WIDER[dtype])
