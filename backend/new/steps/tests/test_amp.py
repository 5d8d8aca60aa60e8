"""Mixed precision: what autocast casts, and a loss that is scaled."""

import pytest
import torch
from torch import nn

X = torch.linspace(-1, 1, 32).view(4, 8)


def dtypes(device: str) -> list[torch.dtype]:
    x, layer = X.to(device), nn.Linear(8, 8).to(device)
    with torch.autocast(device, torch.bfloat16):
        y = layer(x)
        return [v.dtype for v in (y, x + x, y.exp(), y.softmax(-1), y + x)]


def test_operators_are_cast_as_on_the_cpu_or_to_float32() -> None:
    half, full = torch.bfloat16, torch.float32
    assert dtypes("openreg") == [half, full, full, full, full]


def test_the_default_dtype_is_pytorchs() -> None:
    x = X.openreg()
    with torch.autocast("openreg"):
        product = x @ x.t()
    assert product.dtype == torch.get_autocast_dtype("openreg")
    assert (x @ x.t()).dtype == torch.float32


def test_a_dtype_that_is_not_supported_turns_it_off() -> None:
    with (
        pytest.warns(UserWarning, match="only supports dtypes"),
        torch.autocast("openreg", torch.float64),
    ):
        assert not torch.is_autocast_enabled("openreg")


def test_an_unsafe_loss_is_refused() -> None:
    with (
        torch.autocast("openreg"),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        nn.functional.binary_cross_entropy(X.openreg(), X.openreg())


def test_a_step_with_an_infinite_gradient_is_left_out() -> None:
    layer = nn.Linear(8, 1).openreg()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("openreg", init_scale=2.0**10)
    for factor, moves in ((1, True), (float("inf"), False)):
        before = layer.weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(layer(X.openreg()).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, layer.weight) is not moves
    assert scaler.get_scale() == 2.0**9
