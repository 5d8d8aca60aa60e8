"""The tests of squareplus.py; run them with pytest, in this folder."""

from __future__ import annotations

import pytest
import torch
from squareplus import squareplus, squareplus_backward
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck


# [py-test-squareplus] Values, gradients, the compiler's view, and a refusal.
def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to("openreg")


@pytest.mark.parametrize("x", [numbers(3, 4), numbers(3, 4).t(), numbers(0)])
def test_values_are_the_hosts(x: Tensor) -> None:
    host = x.cpu()
    expected = (host + (host * host + 4).sqrt()) / 2
    torch.testing.assert_close(squareplus(x).cpu(), expected)


def test_gradients_are_right() -> None:
    x = numbers(3, 4).requires_grad_()
    assert gradcheck(squareplus, (x, 2.0))
    assert gradgradcheck(squareplus, (x, 2.0))


def test_opcheck_passes() -> None:
    tests = "test_schema", "test_faketensor", "test_aot_dispatch_dynamic"
    x = numbers(3, 4).requires_grad_()
    opcheck(squareplus, (x, 2.0), test_utils=tests)
    opcheck(squareplus_backward, (numbers(3, 4), x, 2.0), test_utils=tests)


def test_integers_are_refused() -> None:
    integers = torch.ones(2, dtype=torch.int64, device="openreg")
    with pytest.raises(RuntimeError, match="expected floats, but got"):
        squareplus(integers)


# [/py-test-squareplus]

# expect: ok
