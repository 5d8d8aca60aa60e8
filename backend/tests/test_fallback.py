"""The CPU fallback: counted, warned about, forbidden, and its refusals."""

from __future__ import annotations

import pytest
import torch

LIBRARY = "openreg_fallback_test"
fallback = torch.openreg.fallback


@pytest.fixture(scope="module", autouse=True)
def operators():
    """Operators that only the CPU has a kernel for."""
    library = torch.library.Library(LIBRARY, "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("twice_(Tensor(a!) x) -> Tensor(a!)")
    library.define("row(Tensor(a) x) -> Tensor(a)")
    library.define("total(Tensor[] xs) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice_", lambda x: x.mul_(2), "CPU")
    library.impl("row", lambda x: x[0], "CPU")
    library.impl("total", lambda xs: torch.stack(xs).sum(0), "CPU")
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def fresh_counts():
    fallback.reset()
    yield
    fallback.allow()
    fallback.reset()


def ops():
    return getattr(torch.ops, LIBRARY)


def test_it_runs_on_the_host_and_is_counted() -> None:
    x = torch.tensor([1.0, 2.0], device="openreg")
    y = ops().twice(x)
    assert y.device == x.device
    assert y.cpu().tolist() == [2, 4]
    ops().twice(x)
    assert fallback.counts() == {f"{LIBRARY}::twice": 2}
    fallback.reset()
    assert fallback.counts() == {}


def test_in_place_results_are_copied_back() -> None:
    x = torch.tensor([1.0, 2.0], device="openreg")
    ops().twice_(x)
    assert x.cpu().tolist() == [2, 4]


def test_it_warns_once_an_operator(capfd) -> None:
    # Calls through torch.ops have no Python frame to warn in, so PyTorch
    # writes the warning to standard error.
    x = torch.ones(1, device="openreg")
    warning = f"'{LIBRARY}::twice' has no kernel for the device and runs on"
    with fallback.warn():
        ops().twice(x)
        ops().twice(x)
        assert capfd.readouterr().err.count(warning) == 1
        fallback.reset()
        ops().twice(x)
        assert capfd.readouterr().err.count(warning) == 1
    ops().twice(x)
    assert warning not in capfd.readouterr().err


def test_forbidden_it_raises_and_counts_nothing() -> None:
    x = torch.ones(1, device="openreg")
    with (
        fallback.forbid(),
        pytest.raises(NotImplementedError, match=f"{LIBRARY}::twice"),
    ):
        ops().twice(x)
    assert fallback.counts() == {}
    assert ops().twice(x).item() == 2


def test_a_mode_lasts_for_its_block_also_after_an_error() -> None:
    x = torch.ones(1, device="openreg")
    with pytest.raises(ZeroDivisionError), fallback.forbid():
        raise ZeroDivisionError
    ops().twice(x)
    fallback.forbid()
    with fallback.allow():
        ops().twice(x)
    with pytest.raises(NotImplementedError):
        ops().twice(x)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'off'; expected 'allow', 'warn'"):
        torch_openreg_c()._set_fallback_mode("off")


def torch_openreg_c():
    import torch_openreg._C

    return torch_openreg._C


def test_a_view_operator_is_refused() -> None:
    x = torch.ones(2, 2, device="openreg")
    with pytest.raises(NotImplementedError, match="cannot make a view"):
        ops().row(x)
    assert fallback.counts() == {}


@pytest.mark.parametrize("other", ["cpu", "openreg:1"])
def test_tensors_on_two_devices_are_refused(other) -> None:
    xs = [torch.ones(2, device="openreg:0"), torch.ones(2, device=other)]
    with pytest.raises(RuntimeError, match="to be on the same device"):
        ops().total(xs)
    assert fallback.counts() == {}
    assert ops().total([xs[0], xs[0]]).cpu().tolist() == [2, 2]


def test_everyday_training_never_falls_back() -> None:
    with fallback.forbid():
        net = torch.nn.Linear(3, 2).to("openreg")
        loss = net(torch.ones(4, 3, device="openreg")).square().mean()
        loss.backward()
        torch.optim.AdamW(net.parameters()).step()
