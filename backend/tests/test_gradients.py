"""First and second derivatives on the device, against finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def with_gradient(*shape: int) -> Tensor:
    """Doubles on the device that want a gradient."""
    x = torch.randn(shape, dtype=torch.float64).to("openreg")
    return x.requires_grad_()


def composed_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


def lstm(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Tensor:
    state, flags = (h, c), (True, 1, 0.0, True, False, False)
    return torch.lstm(x, state, list(weights), *flags)[0]


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (3,), weight, bias)


WORDS = torch.tensor([[2, 0, 2], [1, 1, 3]])
WEIGHTS = [(8, 2), (8, 2), (8,), (8,)]

# The function, and the shapes of its arguments.
DIFFERENTIABLE: dict[
    str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]
] = {
    "conv1d": (F.conv1d, [(1, 2, 5), (3, 2, 2), (3,)]),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, 2, 1, groups=2),
        [(1, 2, 3, 3), (2, 1, 2, 2), (2,)],
    ),
    "conv_transpose2d": (F.conv_transpose2d, [(1, 2, 3, 3), (2, 1, 2, 2)]),
    "attention": (composed_attention, [(1, 1, 3, 2)] * 3),
    "lstm": (lstm, [(2, 2, 2), (1, 2, 2), (1, 2, 2), *WEIGHTS]),
    "batch_norm": (batch_norm, [(3, 2, 2), (2,), (2,)]),
    "layer_norm": (layer_norm, [(2, 3), (3,), (3,)]),
    "embedding": (
        lambda table: F.embedding(WORDS.to("openreg"), table),
        [(4, 2)],
    ),
    "index": (
        lambda x: x[WORDS.to("openreg"), :, WORDS.to("openreg") % 2],
        [(4, 2, 2)],
    ),
    "cumsum": (lambda x: x.cumsum(0), [(3, 2)]),
}


pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_finite_differences(name) -> None:
    function, shapes = DIFFERENTIABLE[name]
    inputs = [with_gradient(*shape) for shape in shapes]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_fused_attention_has_first_derivatives() -> None:
    inputs = [with_gradient(1, 1, 3, 2) for _ in range(3)]
    attention = F.scaled_dot_product_attention
    assert "Overrideable" in attention(*inputs).grad_fn.name()
    assert torch.autograd.gradcheck(attention, inputs)


def test_a_fused_cell_has_first_derivatives() -> None:
    cell = nn.LSTMCell(2, 2, dtype=torch.float64, device="openreg")
    x, h, c = with_gradient(2, 2), with_gradient(2, 2), with_gradient(2, 2)
    assert torch.autograd.gradcheck(lambda *s: cell(s[0], s[1:]), (x, h, c))


class Halved(torch.autograd.Function):
    """The sine, with half of its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() / 2


def test_a_wrong_derivative_is_found() -> None:
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Halved.apply, with_gradient(3))
