"""What Python adds to torch.ops.openreg.

The operators themselves are in csrc/aten/custom.cpp.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The registrations live as long as this does.
_library = torch.library.Library("openreg", "IMPL")


# [py-ops-meta] What results look like, for tensors that have no memory.
def _custom_abs(self: Tensor) -> Tensor:
    return torch.empty_like(self, dtype=self.dtype.to_real())


def _swiglu(x: Tensor, gate: Tensor) -> Tensor:
    torch._check(
        x.shape == gate.shape and x.dtype == gate.dtype,
        lambda: (
            f"swiglu: expected x and gate of one shape and one dtype, but "
            f"got {x.dtype}{[*x.shape]} and {gate.dtype}{[*gate.shape]}"
        ),
    )
    return torch.empty_like(x)


# register_fake would do, but searches every loaded module for its caller.
# A build of the minimal path lacks the operators themselves.
if hasattr(torch.ops.openreg, "custom_abs"):
    _library.impl("custom_abs", _custom_abs, "Meta")
    _library.impl("swiglu", _swiglu, "Meta")
# [/py-ops-meta]
