"""torch.openreg's functions for random numbers, and PyTorch's that use them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from _fresh import prints

openreg = torch.openreg


def draw(device):
    return torch.rand(3, device=device).cpu()


@pytest.mark.proves("hooks-seeds")
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


@pytest.mark.proves("messages.devices-but-got")
def test_too_few_states_are_refused_before_any_is_set():
    before = openreg.get_rng_state(0)
    state = torch.Generator().manual_seed(99).get_state()
    with pytest.raises(ValueError, match="each of 2 devices, but got 1"):
        openreg.set_rng_state_all([state])
    assert torch.equal(openreg.get_rng_state(0), before)


@pytest.mark.proves("generator-all-or-none")
@pytest.mark.parametrize(
    ("state", "error"),
    [
        (torch.zeros(8), TypeError),
        (torch.zeros(8, dtype=torch.uint8), RuntimeError),
        (torch.zeros(5056, dtype=torch.uint8), RuntimeError),
    ],
    ids=["dtype", "size", "content"],
)
def test_a_wrong_state_among_several_sets_none(state, error):
    before = openreg.get_rng_state_all()
    other = torch.Generator().manual_seed(99).get_state()
    with pytest.raises(error, match="state"):
        openreg.set_rng_state_all([other, state])
    assert all(map(torch.equal, openreg.get_rng_state_all(), before))


def test_states_of_all_devices_are_given_to_all_devices():
    openreg.manual_seed_all(5)
    states = openreg.get_rng_state_all()
    openreg.seed_all()
    openreg.set_rng_state_all(state for state in states)  # read only once
    assert all(map(torch.equal, openreg.get_rng_state_all(), states))


def test_a_seed_out_of_range_is_refused_and_changes_nothing():
    before = [*openreg.get_rng_state_all(), torch.get_rng_state()]
    for seed in (2**64, -(2**63) - 1):
        for use in (
            torch.manual_seed,
            openreg.manual_seed,
            openreg.manual_seed_all,
        ):
            with pytest.raises(ValueError, match="Overflow when unpacking"):
                use(seed)
    after = [*openreg.get_rng_state_all(), torch.get_rng_state()]
    assert all(map(torch.equal, after, before))


@pytest.mark.one_mode
def test_a_seed_out_of_range_is_refused_before_the_backend_wakes():
    printed = prints("""
    import torch
    for use in (torch.openreg.manual_seed, torch.manual_seed):
        try:
            use(2**64)
        except ValueError as error:
            print(error)
    torch.openreg.manual_seed(3)
    print(torch.openreg.is_initialized())
    torch.rand(1, device="openreg")
    print(torch.openreg.initial_seed())
    """)
    assert printed.splitlines() == [
        "Overflow when unpacking long long",
        "Overflow when unpacking long long",
        "False",
        "3",
    ]


def test_another_device_type_is_refused():
    with pytest.raises(ValueError, match="Expected an openreg device"):
        openreg.get_rng_state("cuda:0")


@pytest.mark.parametrize("named", [{}, {"device_type": "openreg"}])
def test_fork_rng_restores_the_devices_and_the_cpu(named):
    torch.manual_seed(6)
    expected = draw("cpu"), draw("openreg:0"), draw("openreg:1")
    torch.manual_seed(6)
    with pytest.raises(KeyError), torch.random.fork_rng(range(2), **named):
        torch.manual_seed(7)
        draw("cpu")
        draw("openreg:1")
        raise KeyError
    got = draw("cpu"), draw("openreg:0"), draw("openreg:1")
    assert all(map(torch.equal, got, expected))


def test_fork_rng_leaves_alone_the_devices_that_are_not_named():
    before = openreg.get_rng_state_all()
    with torch.random.fork_rng([1], device_type="openreg"):
        draw("openreg:0")
        draw("openreg:1")
    after = openreg.get_rng_state_all()
    assert not torch.equal(after[0], before[0])
    assert torch.equal(after[1], before[1])


# Checkpoints


class Net(torch.nn.Module):
    """Two layers with dropout between, each on its device."""

    def __init__(self, first, second):
        super().__init__()
        self.devices = first, second
        self.first = torch.nn.Linear(8, 8).to(first)
        self.second = torch.nn.Linear(8, 8).to(second)

    def forward(self, x):
        x = torch.dropout(self.first(x.to(self.devices[0])), 0.5, True)
        x = torch.dropout(self.second(x.to(self.devices[1])), 0.5, True)
        return x.sum()


@pytest.mark.proves("generator-checkpoint")
def test_training_goes_on_after_a_checkpoint_as_if_never_stopped(tmp_path):
    def steps(net, optimizer, count):
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = net(torch.rand(4, 8, device="openreg:1"))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    net = Net("openreg:0", "openreg:1")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps(net, optimizer, 2)
    torch.save(
        {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": openreg.get_rng_state_all(),
        },
        tmp_path / "checkpoint.pt",
    )
    expected = steps(net, optimizer, 3)

    torch.manual_seed(12345)
    saved = torch.load(tmp_path / "checkpoint.pt", map_location="openreg:1")
    again = Net("openreg:0", "openreg:1")
    optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
    again.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    # map_location moves every tensor, and a state belongs on the CPU.
    with pytest.raises(TypeError, match=r"must be a torch\.ByteTensor"):
        openreg.set_rng_state_all(saved["random"])
    openreg.set_rng_state_all([state.cpu() for state in saved["random"]])
    assert steps(again, optimizer, 3) == expected


def test_a_generator_is_saved_and_loaded_where_pytorch_is_told_to_trust_it(
    tmp_path,
):
    generator = torch.Generator("openreg:1").manual_seed(5)
    torch.rand(3, device="openreg:1", generator=generator)
    torch.save({"mine": generator}, tmp_path / "generator.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load fail"):
        torch.load(tmp_path / "generator.pt")
    with torch.serialization.safe_globals([torch.Generator]):
        loaded = torch.load(tmp_path / "generator.pt")["mine"]
    assert loaded.device == generator.device
    assert loaded.initial_seed() == 5
    for _ in range(2):
        a, b = (
            torch.rand(3, device="openreg:1", generator=g)
            for g in (generator, loaded)
        )
        assert a.equal(b)


# Activation checkpointing


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
def test_activation_checkpointing_repeats_the_devices_numbers(
    device, reentrant
):
    x = torch.ones(64, device=device, requires_grad=True)
    y = checkpoint(
        lambda x: torch.dropout(x, 0.5, True), x, use_reentrant=reentrant
    )
    after = openreg.get_rng_state_all()
    y.sum().backward()
    assert torch.equal(x.grad, y)
    assert all(map(torch.equal, openreg.get_rng_state_all(), after))


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_repeats_the_numbers_of_two_devices(reentrant):
    def drop(x, y):
        x = torch.dropout(x, 0.5, True)
        return x, torch.dropout(y, 0.5, True)

    inputs = [
        torch.ones(64, device=device, requires_grad=True)
        for device in ("openreg:0", "openreg:1")
    ]
    outputs = checkpoint(drop, *inputs, use_reentrant=reentrant)
    draw("openreg:0")  # between forward and backward, both move on
    draw("openreg:1")
    # On one thread, because two that recompute at a time set each other's
    # states, in PyTorch's own code (torch 2.13).
    with torch.autograd.set_multithreading_enabled(False):
        torch.autograd.backward([y.sum() for y in outputs])
    for x, y in zip(inputs, outputs, strict=True):
        assert torch.equal(x.grad, y)


@pytest.mark.parametrize("reentrant", [True, False])
def test_without_the_states_other_numbers_are_drawn(reentrant):
    x = torch.ones(64, device="openreg:1", requires_grad=True)
    y = checkpoint(
        lambda x: torch.dropout(x, 0.5, True),
        x,
        use_reentrant=reentrant,
        preserve_rng_state=False,
    )
    y.sum().backward()
    assert not torch.equal(x.grad, y)


# The CPU's own numbers


class Draws(torch.utils.data.Dataset[Any]):
    """What a worker's CPU generator was seeded with, and what it draws."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info().id
        return worker, torch.initial_seed(), torch.rand(()).item()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_the_workers_of_a_loader_have_the_seeds_they_would_have_anyway():
    torch.manual_seed(3)
    base = torch.empty((), dtype=torch.int64).random_().item()
    torch.manual_seed(3)
    draw("openreg:0")  # moves no generator that the loader asks
    states = openreg.get_rng_state_all()
    loader = torch.utils.data.DataLoader(
        Draws(), batch_size=None, num_workers=2
    )
    seen: dict[int, list[float]] = {}
    for worker, seed, number in loader:
        assert seed == base + worker
        seen.setdefault(worker, []).append(number)
    for worker, numbers in seen.items():
        generator = torch.Generator().manual_seed(base + worker)
        assert numbers == [
            torch.rand((), generator=generator).item() for _ in numbers
        ]
    assert sorted(seen) == [0, 1]
    assert all(map(torch.equal, openreg.get_rng_state_all(), states))


def test_a_loader_shuffles_as_it_would_anyway():
    def order():
        loader: Any = torch.utils.data.DataLoader(
            range(50), batch_size=None, shuffle=True
        )
        return list(loader)

    torch.manual_seed(3)
    expected = order()
    torch.manual_seed(3)
    torch.randperm(50, device="openreg")
    assert order() == expected
