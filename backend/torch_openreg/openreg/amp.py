"""What torch.amp asks of the device."""

from __future__ import annotations

import torch

__all__ = ["get_amp_supported_dtype"]


# [py-amp-dtypes] torch.autocast accepts these, and warns about others.
def get_amp_supported_dtype() -> list[torch.dtype]:
    """Returns the dtypes that `torch.autocast("openreg", dtype)` may cast to.

    Without a dtype, autocast takes `torch.get_autocast_dtype("openreg")`,
    which PyTorch sets to float16 at the start.
    """
    return [torch.bfloat16, torch.float16]


# [/py-amp-dtypes]
