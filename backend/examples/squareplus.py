"""An operator from outside the backend: (x + sqrt(x * x + b)) / 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake


# [py-squareplus-kernels] Two kernels with schemas: forward and backward.
def check(x: Tensor) -> None:
    torch._check(
        x.is_floating_point(),
        lambda: f"squareplus: expected floats, but got {x.dtype}",
    )


@custom_op("toy::squareplus", mutates_args=(), device_types="openreg")
def squareplus(x: Tensor, b: float = 4.0) -> Tensor:
    check(x)
    result = torch.mul(x, x)
    return result.add_(b).sqrt_().add_(x).mul_(0.5)


@custom_op("toy::squareplus_backward", mutates_args=(), device_types="openreg")
def squareplus_backward(gradient: Tensor, x: Tensor, b: float) -> Tensor:
    return gradient * (1 + x / (x * x + b).sqrt()) / 2


# [/py-squareplus-kernels]


# [py-squareplus-fakes] The shapes and dtypes of the results, without values.
@register_fake("toy::squareplus")
def _(x: Tensor, b: float = 4.0) -> Tensor:
    check(x)
    return torch.empty_like(x)


@register_fake("toy::squareplus_backward")
def _(gradient: Tensor, x: Tensor, b: float) -> Tensor:
    return torch.empty_like(x)


# [/py-squareplus-fakes]


# [py-squareplus-formulas] The first derivative is the second operator.
def save(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    x, ctx.b = inputs
    ctx.save_for_backward(x)


def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    return squareplus_backward(gradient, x, ctx.b), None


def save_twice(
    ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor
) -> None:
    gradient, x, ctx.b = inputs
    ctx.save_for_backward(gradient, x)


def backward_twice(ctx: Any, second: Tensor) -> tuple[Tensor, Tensor, None]:
    gradient, x = ctx.saved_tensors
    root = (x * x + ctx.b).sqrt()
    of_x = second * gradient * ctx.b / (2 * root**3)
    return squareplus_backward(second, x, ctx.b), of_x, None


register_autograd("toy::squareplus", backward, setup_context=save)
register_autograd(
    "toy::squareplus_backward", backward_twice, setup_context=save_twice
)
# [/py-squareplus-formulas]

# expect: ok
