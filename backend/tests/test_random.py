"""torch.openreg's functions for random numbers, and PyTorch's that use them."""

from __future__ import annotations

import pytest
import torch

openreg = torch.openreg


def draw(device):
    return torch.rand(3, device=device).cpu()


def test_manual_seed_seeds_the_current_device_alone():
    with openreg.device(1):
        openreg.manual_seed(42)
        assert openreg.initial_seed() == 42
    assert openreg.initial_seed() != 42
    expected = torch.rand(3, generator=torch.Generator().manual_seed(42))
    assert torch.equal(draw("openreg:1"), expected)


def test_manual_seed_all_seeds_every_device():
    openreg.manual_seed_all(-1)
    assert torch.equal(draw("openreg:0"), draw("openreg:1"))
    assert openreg.initial_seed() == 2**64 - 1


def test_torch_manual_seed_reaches_every_device():
    torch.manual_seed(9)
    cpu = torch.rand(3)
    for device in ("openreg:0", "openreg:1"):
        assert torch.equal(draw(device), cpu)


def test_torch_seed_reaches_every_device():
    assert torch.seed() == openreg.initial_seed()
    assert torch.equal(draw("openreg:0"), draw("openreg:1"))


def test_seed_is_random_and_of_the_current_device():
    torch.manual_seed(0)
    with openreg.device(1):
        openreg.seed()
        first = openreg.initial_seed()
        openreg.seed()
        assert openreg.initial_seed() != first
    assert openreg.initial_seed() == 0


def test_seed_all_gives_every_device_one_random_seed():
    openreg.seed_all()
    seeds = [
        generator.initial_seed() for generator in openreg.default_generators
    ]
    assert seeds[0] == seeds[1] != 0


def test_states_of_one_device_and_of_all():
    one, all_states = openreg.get_rng_state(1), openreg.get_rng_state_all()
    assert torch.equal(one, all_states[1])
    first = [draw("openreg:0"), draw("openreg:1")]
    openreg.set_rng_state(one, "openreg:1")
    assert torch.equal(draw("openreg:1"), first[1])
    openreg.set_rng_state_all(all_states)
    assert torch.equal(draw("openreg:0"), first[0])
    assert torch.equal(draw("openreg:1"), first[1])


def test_the_state_is_by_default_the_current_devices():
    openreg.manual_seed(1)
    with openreg.device(1):
        openreg.set_rng_state(openreg.get_rng_state(0))
        assert torch.equal(openreg.get_rng_state(), openreg.get_rng_state(0))


def test_too_few_states_are_refused_before_any_is_set():
    before = openreg.get_rng_state(0)
    state = torch.Generator().manual_seed(99).get_state()
    with pytest.raises(ValueError, match="each of 2 devices, but got 1"):
        openreg.set_rng_state_all([state])
    assert torch.equal(openreg.get_rng_state(0), before)


def test_another_device_type_is_refused():
    with pytest.raises(ValueError, match="Expected an openreg device"):
        openreg.get_rng_state("cuda:0")


def test_fork_rng_restores_the_devices_and_the_cpu():
    torch.manual_seed(6)
    expected = draw("cpu"), draw("openreg:0"), draw("openreg:1")
    torch.manual_seed(6)
    with torch.random.fork_rng(devices=range(2)):
        torch.manual_seed(7)
        draw("cpu")
        draw("openreg:1")
    got = draw("cpu"), draw("openreg:0"), draw("openreg:1")
    assert all(map(torch.equal, got, expected))


def test_checkpoint_repeats_the_devices_numbers():
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(64, device="openreg", requires_grad=True)
    for reentrant in (True, False):
        x.grad = None
        y = checkpoint(
            lambda x: torch.dropout(x, 0.5, True), x, use_reentrant=reentrant
        )
        y.sum().backward()
        assert torch.equal(x.grad, y)
