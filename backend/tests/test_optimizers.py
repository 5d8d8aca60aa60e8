"""Every optimizer of PyTorch in every form: the CPU's steps, its refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind)
    and issubclass(kind, Optimizer)
    and kind is not Optimizer
}
# The others want sparse gradients, matrices only, or an evaluation again: they
# are rows of PyTorch's database (test_operator_database.py).
ORDINARY = sorted(set(OPTIMIZERS) - {"SparseAdam", "Muon", "LBFGS"})
FORMS = ("foreach", "fused", "capturable")


def takes(name: str, form: str) -> bool:
    return form in inspect.signature(OPTIMIZERS[name]).parameters


CASES = [(name, "") for name in ORDINARY] + [
    (name, form) for name in ORDINARY for form in FORMS if takes(name, form)
]


def train(name: str, device: str, **options: bool) -> list[Tensor]:
    """Weights and states after three steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    model.to(device)
    optimizer = OPTIMIZERS[name](model.parameters(), lr=0.1, **options)
    x = torch.arange(12.0).view(3, 4).to(device) / 7

    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    states = [
        s for p in model.parameters() for s in optimizer.state[p].values()
    ]
    kept = [s for s in states if isinstance(s, Tensor)]
    return [p.detach() for p in model.parameters()] + kept


@pytest.mark.proves("special-optimizers")
@pytest.mark.parametrize(("name", "form"), CASES)
def test_steps_are_the_cpus(name: str, form: str) -> None:
    # On the CPU `capturable` is refused; it changes where steps are counted.
    options = {form: True} if form else {}
    expected = train(name, "cpu", **({} if form == "capturable" else options))
    with torch.openreg.fallback.forbid():
        got = train(name, "openreg", **options)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_capturable_keeps_the_step_on_the_device() -> None:
    steps = {}
    for capturable in (False, True):
        weight = torch.ones(2, device="openreg", requires_grad=True)
        adam = torch.optim.Adam([weight], capturable=capturable)
        weight.sum().backward()
        adam.step()
        steps[capturable] = adam.state[weight]["step"].device.type
    assert steps == {False: "cpu", True: "openreg"}


def test_foreach_is_what_an_optimizer_chooses_by_itself() -> None:
    group = [torch.ones(2, device="openreg", requires_grad=True)]
    with torch.profiler.profile() as chosen:
        group[0].sum().backward()
        torch.optim.Adam(group).step()
    assert any("_foreach_add" in row.key for row in chosen.key_averages())


def test_fused_and_foreach_together_are_refused() -> None:
    weight = torch.ones(2, device="openreg", requires_grad=True)
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be"):
        torch.optim.Adam([weight], fused=True, foreach=True)
