"""Tensors that many tests use, and how a result is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Of a tensor with four dimensions: how it may lie in memory.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 3),
    "every second": lambda x: x[..., ::2],
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "expanded": lambda x: x[:, :1].expand_as(x),
    "offset": lambda x: x[:, 1:],
    "0-d": lambda x: x[0, 0, 0, 0],
    "empty": lambda x: x[:0],
}


def ascending(
    *shape: int, device: str = "openreg", first: float = 0.0
) -> Tensor:
    """Floats in order, each one more than the one before."""
    past = first + torch.Size(shape).numel()
    return torch.arange(first, past, device=device).view(shape)


def normal(*shape: int, device: str = "openreg") -> Tensor:
    """Numbers of a normal distribution, which depend on the shape alone."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(device)


def assert_same(got: Tensor, expected: Tensor, error: float = 0) -> None:
    """Values, dtype, shape and strides are the CPU's, the device is ours."""
    assert got.device.type == "openreg"
    assert got.stride() == expected.stride()
    torch.testing.assert_close(
        got.cpu(), expected, rtol=error, atol=error, equal_nan=True
    )


class _Look(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, look: Callable[[], object]) -> Tensor:
        ctx.look = look
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.look()
        return grad, None


def in_backward(x: Tensor, look: Callable[[], object]) -> Tensor:
    """A copy of `x`, whose backward pass calls `look` where autograd runs."""
    copy: Tensor = _Look.apply(x, look)  # type: ignore[no-untyped-call]
    return copy
