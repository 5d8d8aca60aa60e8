"""Results without data that look as the device's do.

A compiler reads shapes and strides from FakeTensors, tensors without data that
say they are on a device. For most operators PyTorch knows what their results
look like on any device. For a few it knows each device by name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

# The registrations live as long as this does.
_library = torch.library.Library("aten", "IMPL")


# [py-fakes-rule] The device's kernels are the CPU's, so this asks the CPU.
def _answer_as_cpu(
    mode: FakeTensorMode,
    func: torch._ops.OpOverload,
    types: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    device = args[0].device
    if device.type != "openreg":
        return mode.__torch_dispatch__(func, types, args, kwargs)
    with mode:
        args, kwargs = tree_map_only(Tensor, Tensor.cpu, (args, kwargs))
        result = func(*args, **kwargs)
        return tree_map_only(Tensor, lambda t: t.to(device), result)


for _operator in (
    "_batch_norm_no_update",
    "_batch_norm_with_update",
    "_convolution",
    "convolution",
    "convolution_backward",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_no_training",
    "native_layer_norm",
    "nonzero_static",
):
    torch.library.register_torch_dispatch(
        f"aten::{_operator}", FakeTensorMode, _answer_as_cpu, lib=_library
    )
# [/py-fakes-rule]

# Our kernel of a composite operator is found before what PyTorch has for those
# who trace it with symbols for sizes. They get that, as they do on the CPU.
_lstm = torch.ops.aten.lstm.input
_lstm.py_impl(DispatchKey.AutogradPrivateUse1)(
    _lstm.py_kernels[DispatchKey.CompositeImplicitAutograd]
)
