"""Generators: a device draws the CPU's numbers, and from its own generator."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

openreg = torch.openreg
DEVICES = ["openreg:0", "openreg:1"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "draw",
    [
        lambda device: torch.rand(1000, device=device),
        lambda device: torch.randn(1001, dtype=torch.float64, device=device),
        lambda device: torch.randint(-9, 9, (100,), device=device),
        lambda device: torch.randperm(50, device=device),
        lambda device: torch.empty(64, device=device).exponential_(),
        lambda device: torch.dropout(torch.ones(64, device=device), 0.5, True),
        lambda device: torch.bernoulli(torch.full((64,), 0.3, device=device)),
        lambda device: torch.multinomial(torch.ones(9, device=device), 4),
    ],
)
def test_equal_seeds_give_the_cpus_numbers(device, draw):
    torch.manual_seed(11)
    expected = draw("cpu"), draw("cpu")
    torch.manual_seed(11)
    got = draw(device), draw(device)
    for one, other in zip(got, expected, strict=True):
        assert one.device == torch.device(device)
        assert torch.equal(one.cpu(), other)


def test_a_new_generator_starts_with_pytorchs_default_seed():
    fresh = torch.Generator("openreg")
    assert fresh.initial_seed() == torch.Generator().initial_seed()


def test_seed_draws_another_seed_and_returns_it():
    generator = torch.Generator("openreg")
    seeds = {generator.seed(), generator.seed()}
    assert len(seeds) == 2
    assert generator.initial_seed() in seeds


def test_state_can_be_read_set_and_cloned():
    generator = torch.Generator("openreg").manual_seed(3)
    state = generator.get_state()
    assert state.device.type == "cpu"
    clone = generator.clone_state()
    assert clone.device == generator.device

    def draw(source):
        return torch.rand(4, device="openreg", generator=source).cpu()

    first = draw(generator)
    assert torch.equal(draw(clone), first)
    assert not torch.equal(draw(generator), first)
    generator.set_state(state)
    assert torch.equal(draw(generator), first)


def test_a_state_is_one_of_the_cpus():
    torch.manual_seed(8)
    assert torch.equal(openreg.get_rng_state(), torch.get_rng_state())


def test_a_wrong_state_is_refused():
    generator = torch.Generator("openreg")
    with pytest.raises(TypeError, match=r"must be a torch\.ByteTensor"):
        generator.set_state(torch.zeros(8))
    with pytest.raises(RuntimeError, match="state"):
        generator.set_state(torch.zeros(8, dtype=torch.uint8))


def answer(call) -> tuple[type, str] | None:
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize(
    "use",
    [
        lambda generator: generator.graphsafe_get_state(),
        lambda generator: generator.graphsafe_set_state(generator),
    ],
)
def test_what_the_cpus_generator_refuses_is_refused_alike(use):
    refusal = answer(lambda: use(torch.Generator()))
    assert refusal is not None
    assert answer(lambda: use(torch.Generator("openreg"))) == refusal


def test_it_has_no_offset_but_gives_one_to_whoever_copies_it():
    generator = torch.Generator("openreg")
    generator.set_offset(generator.get_offset())
    with pytest.raises(RuntimeError, match="has no offset; expected 0, got 4"):
        generator.set_offset(4)


@pytest.mark.parametrize(
    "twin",
    [copy.deepcopy, lambda generator: pickle.loads(pickle.dumps(generator))],
    ids=["deepcopy", "pickle"],
)
def test_a_copied_generator_goes_on_where_the_first_stood(twin):
    first = torch.Generator("openreg:1").manual_seed(5)
    torch.rand(7, device="openreg:1", generator=first)
    second = twin(first)
    assert second.device == first.device
    a = torch.rand(9, device="openreg:1", generator=first)
    b = torch.rand(9, device="openreg:1", generator=second)
    assert a.equal(b)


def test_a_generator_of_another_type_is_refused():
    found = "device type for generator but found"
    with pytest.raises(RuntimeError, match=f"'openreg' {found} 'cpu'"):
        torch.rand(2, device="openreg", generator=torch.Generator())
    with pytest.raises(RuntimeError, match=f"'cpu' {found} 'openreg'"):
        torch.rand(2, generator=torch.Generator("openreg"))


def test_the_default_generators_are_one_object_each():
    for index, generator in enumerate(openreg.default_generators):
        assert generator.device == torch.device("openreg", index)
    assert openreg.default_generators[0] is not openreg.default_generators[1]
    generator = openreg.default_generators[1].manual_seed(21)
    assert generator is openreg.default_generators[1]
    first = torch.rand(3, device="openreg:1")
    generator.manual_seed(21)
    assert torch.equal(torch.rand(3, device="openreg:1"), first)


def test_devices_draw_from_generators_of_their_own():
    torch.manual_seed(1)
    expected = torch.rand(3, device="openreg:1").cpu()
    torch.manual_seed(1)
    torch.rand(100, device="openreg:0")
    torch.rand(100)
    assert torch.equal(torch.rand(3, device="openreg:1").cpu(), expected)
