"""torch.openreg.FloatTensor and its kin: a dtype and the device in one name.

They are older than `dtype=` and `device=`. Programs and tests that were written
for torch.cuda still use them, to make a tensor and to ask what it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.types import Device

from torch_openreg.openreg._utils import _get_device_index

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class _TensorType(type):
    """What such a name does: it makes tensors, and knows them again."""

    dtype: torch.dtype
    layout = torch.strided

    def __call__(cls, *data: Any, device: Device = None) -> torch.Tensor:
        here = torch.device("openreg", _get_device_index(device, optional=True))
        return torch.empty(0, dtype=cls.dtype, device=here).new(*data)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "openreg"
            and instance.dtype == cls.dtype
            and instance.layout == cls.layout
        )


def _name(dtype: torch.dtype, name: str) -> _TensorType:
    text = (
        f"Makes {dtype} tensors of a size or from values on the current "
        "device, and is their type in `isinstance` and `Tensor.type`."
    )
    # `Tensor.type` goes by the name of the class, as by a string.
    return _TensorType(
        f"torch.openreg.{name}",
        (),
        {
            "__doc__": text,
            "__module__": __name__,
            "__qualname__": name,
            "dtype": dtype,
        },
    )


BFloat16Tensor = _name(torch.bfloat16, "BFloat16Tensor")
BoolTensor = _name(torch.bool, "BoolTensor")
ByteTensor = _name(torch.uint8, "ByteTensor")
CharTensor = _name(torch.int8, "CharTensor")
DoubleTensor = _name(torch.float64, "DoubleTensor")
FloatTensor = _name(torch.float32, "FloatTensor")
HalfTensor = _name(torch.float16, "HalfTensor")
IntTensor = _name(torch.int32, "IntTensor")
LongTensor = _name(torch.int64, "LongTensor")
ShortTensor = _name(torch.int16, "ShortTensor")
