"""What torch.amp asks of the device, and the old names of what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class GradScaler(torch.amp.GradScaler):
    """As `torch.amp.GradScaler("openreg")`, under the name that CUDA's has.

    Args:
        *arguments: What `torch.amp.GradScaler` takes after the device.
        **options: The same, by name.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__("openreg", *arguments, **options)


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    cast_inputs: torch.dtype | None = None,
) -> Callable[..., Any]:
    """As `torch.amp.custom_fwd` with the device type `"openreg"`.

    Args:
        fwd: The `forward` of an autograd function; without it, a decorator
            is returned.
        cast_inputs: The dtype of the inputs within an autocast region, where
            `fwd` then runs without autocast.
    """
    wrapped: Callable[..., Any] = torch.amp.custom_fwd(
        fwd, device_type="openreg", cast_inputs=cast_inputs
    )
    return wrapped


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """As `torch.amp.custom_bwd` with the device type `"openreg"`.

    Args:
        bwd: The `backward` of a function whose `forward` has `custom_fwd`;
            without it, a decorator is returned.
    """
    wrapped: Callable[..., Any] = torch.amp.custom_bwd(
        bwd, device_type="openreg"
    )
    return wrapped
