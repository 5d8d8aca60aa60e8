"""What Python adds to torch.ops.openreg.

The operators themselves are in csrc/aten/operators/custom.cpp.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The registrations live as long as this does.
_library = torch.library.Library("openreg", "IMPL")


# [py-ops-meta] What the result looks like, for tensors that have no memory.
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
# A build of the minimal path lacks the operator itself.
if hasattr(torch.ops.openreg, "swiglu"):
    _library.impl("swiglu", _swiglu, "Meta")
# [/py-ops-meta]
