"""The kernels of float32: values, layouts, and what they leave to the CPU."""

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

X = torch.linspace(-2, 3, 24).view(4, 6)
Y = X.flip(0) + 0.5
DEEP = torch.linspace(-1, 1, 2**13).view([2] * 13)


def ours(value):
    return value.to("openreg") if isinstance(value, Tensor) else value


def copies(call, *arguments) -> int:
    """How many copies a call makes; the fallback makes some, a kernel none."""
    arguments = [ours(argument) for argument in arguments]
    with profile() as run:
        call(*arguments)
    return sum(event.name == "aten::_copy_from" for event in run.events())


def check(call, *arguments) -> None:
    result, expected = call(*map(ours, arguments)), call(*arguments)
    torch.testing.assert_close(result.cpu(), expected)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (torch.mul, (X, Y)),
        (torch.mul, (X, 3)),
        (torch.mul, (X.t(), Y.t())),
        (torch.mul, (X[:, ::2], Y[:1, 1::2])),
        (torch.mul, (X, Y.half())),
        (torch.mul, (X[:0], Y[:0])),
        (lambda x, y: x.mul_(y), (X.clone(), Y)),
        (torch.neg, (X,)),
        (torch.neg, (X.expand(2, 4, 6),)),
        (torch.ops.aten.threshold_backward, (X, Y, 0.5)),
        (torch.sum, (X,)),
        (lambda x: x.sum(0), (X,)),
        (lambda x: x.sum(1, keepdim=True), (X.t(),)),
        (lambda x: x.sum((0, 2)), (X.view(2, 3, 4),)),
    ],
)
def test_float32_runs_on_the_device(call, arguments) -> None:
    check(call, *arguments)
    assert copies(call, *arguments) == 0


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (torch.mul, (X.double(), Y.double())),
        (torch.mul, (X.long(), Y.long())),
        (torch.mul, (DEEP, DEEP.permute(*range(12, -1, -1)))),
        (torch.neg, (X.to(torch.complex64),)),
        (torch.ops.aten.threshold_backward, (X.double(), Y.double(), 0)),
        (torch.sum, (X.long(),)),
        (lambda x: x.sum(0, dtype=torch.float64), (X,)),
    ],
)
def test_what_a_kernel_declines_is_the_cpus(call, arguments) -> None:
    check(call, *arguments)
    assert copies(call, *arguments) > 0


def test_a_result_of_a_wrong_dtype_is_refused() -> None:
    out = torch.empty(4, 6, dtype=torch.int64, device="openreg")
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.mul(X.openreg(), Y.openreg(), out=out)


def test_a_gradient_passes_the_kernels() -> None:
    x, theirs = X.openreg().requires_grad_(), X.clone().requires_grad_()
    for value in (x, theirs):
        (-(value * value).relu()).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), theirs.grad)
