"""Calls the library that extension.cpp became."""

import ctypes
import sys

import torch

# [py-extension-use] The function gets an address, and uses the current stream.
library = ctypes.CDLL(sys.argv[1])
library.scale.restype = ctypes.c_bool


def scale(tensor: torch.Tensor, factor: float) -> bool:
    return library.scale(
        ctypes.c_void_p(tensor.data_ptr()),
        ctypes.c_int64(tensor.numel()),
        ctypes.c_float(factor),
    )


x = torch.tensor([1.0, 2.0, 3.0], device="openreg")
print(scale(x, 2.0), x.tolist())
print(scale(torch.ones(1), 2.0))
# [/py-extension-use]

# expect: ok
