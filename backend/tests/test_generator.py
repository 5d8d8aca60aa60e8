"""Generators: a device draws the CPU's numbers, and from its own generator."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import torch

openreg = torch.openreg
DEVICES = ["openreg:0", "openreg:1"]


def draw(generator):
    device = generator.device
    return torch.rand(4, device=device, generator=generator).cpu()


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


@pytest.mark.proves("generator.current_seed")
def test_a_new_generator_starts_with_pytorchs_default_seed():
    fresh = torch.Generator("openreg")
    assert fresh.initial_seed() == torch.Generator().initial_seed()


@pytest.mark.proves("generator.seed")
def test_seed_draws_another_seed_and_returns_it():
    generator = torch.Generator("openreg")
    seeds = {generator.seed(), generator.seed()}
    assert len(seeds) == 2
    assert generator.initial_seed() in seeds


@pytest.mark.proves("generator.get_state", "generator.set_state")
def test_state_can_be_read_set_and_cloned():
    generator = torch.Generator("openreg").manual_seed(3)
    state = generator.get_state()
    assert state.device.type == "cpu"
    clone = generator.clone_state()
    assert clone.device == generator.device

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


@pytest.mark.proves("generator.set_current_seed")
def test_a_seed_out_of_range_is_refused():
    generator = torch.Generator("openreg").manual_seed(3)
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking"):
            generator.manual_seed(seed)
    assert generator.initial_seed() == 3
    assert generator.manual_seed(-1).initial_seed() == 2**64 - 1


@pytest.mark.proves("generator.clone_impl")
def test_a_clone_goes_its_own_way():
    first = torch.Generator("openreg:1").manual_seed(3)
    clone = first.clone_state()
    state = first.get_state()
    draw(clone)
    clone.manual_seed(4)
    assert torch.equal(first.get_state(), state)
    assert first.initial_seed() == 3


@pytest.mark.proves("generator.philox_state")
@pytest.mark.skipif(
    not hasattr(torch.Generator, "philox_state"), reason="from torch 2.14"
)
def test_a_generator_without_a_counter_refuses_to_tell_it():
    generator = torch.Generator("openreg").manual_seed(3)
    before = generator.get_state()
    with pytest.raises(NotImplementedError, match="philox_state is not supp"):
        generator.philox_state(4)
    assert torch.equal(generator.get_state(), before)


class TestGraphsafe:
    """A state that is handed over by reference."""

    @pytest.mark.proves("generator.graphsafe_get_state")
    def test_what_one_draws_the_other_has_drawn(self):
        first = torch.Generator("openreg:1").manual_seed(3)
        state = first.graphsafe_get_state()
        assert state is not first
        assert state.device == first.device
        alone = torch.Generator("openreg:1").manual_seed(3)
        for turn in (first, state, first):
            assert torch.equal(draw(turn), draw(alone))
        assert torch.equal(first.get_state(), state.get_state())

    def test_seeding_and_setting_one_seeds_and_sets_the_other(self):
        first = torch.Generator("openreg")
        state = first.graphsafe_get_state()
        state.manual_seed(8)
        assert first.initial_seed() == 8
        other = torch.Generator("openreg").manual_seed(9).get_state()
        first.set_state(other)
        assert torch.equal(state.get_state(), other)
        assert state.seed() == first.initial_seed()

    @pytest.mark.proves("generator.graphsafe_set_state")
    def test_a_state_is_taken_over_and_the_old_one_let_go(self):
        first = torch.Generator("openreg").manual_seed(1)
        old, new = first.graphsafe_get_state(), torch.Generator("openreg")
        new.manual_seed(2)
        assert first.graphsafe_set_state(new) is first
        expected = torch.Generator("openreg").manual_seed(2)
        assert torch.equal(draw(first), draw(expected))
        assert torch.equal(draw(new), draw(expected))
        assert torch.equal(
            draw(old), draw(torch.Generator("openreg").manual_seed(1))
        )

    def test_the_default_generator_can_take_one_over_too(self):
        default = openreg.default_generators[1]
        before = default.graphsafe_get_state()
        mine = torch.Generator("openreg:1").manual_seed(77)
        default.graphsafe_set_state(mine)
        try:
            torch.rand(5, device="openreg:1")
        finally:
            default.graphsafe_set_state(before)
        expected = torch.Generator("openreg:1").manual_seed(77)
        torch.rand(5, device="openreg:1", generator=expected)
        assert torch.equal(mine.get_state(), expected.get_state())
        assert openreg.initial_seed() == before.initial_seed()

    def test_a_clone_shares_nothing(self):
        first = torch.Generator("openreg").manual_seed(3)
        clone = first.graphsafe_get_state().clone_state()
        state = clone.get_state()
        draw(first)
        assert torch.equal(clone.get_state(), state)

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (lambda: torch.Generator(), "'openreg' device type for .* 'cpu'"),
            (
                lambda: torch.Generator("openreg:0"),
                "'openreg:1' generator device but found 'openreg:0'",
            ),
        ],
        ids=["cpu", "openreg:0"],
    )
    def test_the_state_of_another_device_is_refused(self, other, message):
        first = torch.Generator("openreg:1").manual_seed(3)
        with pytest.raises(RuntimeError, match=f"Expected a {message}"):
            first.graphsafe_set_state(other())
        with pytest.raises(TypeError, match="expected a Generator"):
            first.graphsafe_set_state(None)
        assert first.initial_seed() == 3

    def test_the_cpus_generator_has_none(self):
        with pytest.raises(NotImplementedError, match="not supported in this"):
            torch.Generator().graphsafe_set_state(torch.Generator("openreg"))


@pytest.mark.proves(
    "generator.get_offset",
    "generator.set_offset",
    "messages.has-no-offset-expected-0-got",
)
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


@pytest.mark.proves("messages.generator-device-but-found")
@pytest.mark.parametrize(
    "use",
    [
        lambda generator: torch.rand(
            2, device="openreg:0", generator=generator
        ),
        lambda generator: torch.randperm(
            5, device="openreg:0", generator=generator
        ),
        lambda generator: torch.ones(9, device="openreg:0").bernoulli_(
            generator=generator
        ),
    ],
    ids=["rand", "randperm", "bernoulli_"],
)
def test_a_generator_of_another_device_is_refused(use):
    generator = torch.Generator("openreg:1").manual_seed(3)
    states = openreg.get_rng_state_all()
    expected = "Expected a 'openreg:0' generator device but found 'openreg:1'"
    with pytest.raises(RuntimeError, match=expected):
        use(generator)
    assert torch.equal(
        draw(generator), draw(torch.Generator("openreg:1").manual_seed(3))
    )
    assert all(map(torch.equal, openreg.get_rng_state_all(), states))
    assert use(torch.Generator("openreg:0")).device.index == 0


def test_a_refused_generator_leaves_the_tensor_as_it_was():
    x = torch.ones(9, device="openreg:1")
    with pytest.raises(RuntimeError, match="generator device but found"):
        x.normal_(generator=torch.Generator("openreg:0"))
    with pytest.raises(RuntimeError, match="device type for generator"):
        x.normal_(generator=torch.Generator())
    assert x.tolist() == [1] * 9


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


class TestThreads:
    """Many threads, one generator: each draw is whole, in some order."""

    @staticmethod
    def together(*works):
        """Runs the functions at once, each in a thread; returns answers."""
        barrier = threading.Barrier(len(works))

        def start(work):
            barrier.wait()
            return work()

        with ThreadPoolExecutor(len(works)) as pool:
            return list(pool.map(start, works))

    @pytest.mark.parametrize(
        "numbers",
        [
            lambda g: torch.rand(61, device="openreg", generator=g),
            lambda g: torch.randn(17, device="openreg", generator=g),
            lambda g: torch.randint(999, (33,), device="openreg", generator=g),
            lambda g: torch.randperm(99, device="openreg", generator=g),
            lambda g: torch.multinomial(
                torch.ones(99, device="openreg"), 50, generator=g
            ),
        ],
        ids=["rand", "randn", "randint", "randperm", "multinomial"],
    )
    def test_each_draw_is_whole(self, numbers):
        generator = torch.Generator("openreg").manual_seed(1)

        def work():
            return [tuple(numbers(generator).tolist()) for _ in range(20)]

        one_after_another = [work() for _ in range(4)]
        generator.manual_seed(1)
        at_once = self.together(*[work] * 4)
        assert sorted(chain(*at_once)) == sorted(chain(*one_after_another))

    def test_dropout_draws_from_the_default_generator_whole(self):
        x = torch.ones(99, device="openreg")

        def work():
            dropped = (torch.dropout(x, 0.5, True) for _ in range(20))
            return [tuple(y.tolist()) for y in dropped]

        one_after_another = [work() for _ in range(4)]
        torch.manual_seed(0)  # as every test begins
        at_once = self.together(*[work] * 4)
        assert sorted(chain(*at_once)) == sorted(chain(*one_after_another))

    def test_a_state_is_never_one_from_the_middle_of_a_draw(self):
        generator = torch.Generator("openreg").manual_seed(1)
        finished = threading.Event()

        def state():
            return generator.get_state().numpy().tobytes()

        def one():
            torch.rand(30_000, device="openreg", generator=generator)
            return state()

        def work():
            for _ in range(50):
                one()
            finished.set()

        def watch():
            seen = {state()}
            while not finished.is_set():
                seen.add(state())
            return seen

        between = {state()} | {one() for _ in range(50)}
        generator.manual_seed(1)
        _, seen = self.together(work, watch)
        assert seen <= between

    def test_a_state_may_be_taken_over_while_others_draw(self):
        """The one before it goes as soon as no draw has it any longer."""
        generator = torch.Generator("openreg").manual_seed(1)
        finished = threading.Event()

        def work():
            return [tuple(draw(generator).tolist()) for _ in range(500)]

        def draw_all():
            try:
                return self.together(work, work)
            finally:
                finished.set()

        def swap():
            while not finished.is_set():
                other = torch.Generator("openreg").manual_seed(1)
                generator.graphsafe_set_state(other)

        drawn, _ = self.together(draw_all, swap)
        alone = torch.Generator("openreg").manual_seed(1)
        expected = {tuple(draw(alone).tolist()) for _ in range(1000)}
        assert set(chain(*drawn)) <= expected

    def test_devices_do_not_disturb_each_other(self):
        def work(device):
            rows = [torch.rand(50, device=device).cpu() for _ in range(50)]
            return torch.stack(rows)

        expected = torch.stack([torch.rand(50) for _ in range(50)])
        for got in self.together(*[lambda d=d: work(d) for d in DEVICES]):
            assert torch.equal(got, expected)

    @pytest.mark.queued
    def test_a_draw_that_waits_for_its_stream_keeps_no_other_from_drawing(self):
        generator = torch.Generator("openreg").manual_seed(1)
        stream, gate = torch.Stream("openreg"), openreg.testing.Gate()
        gate.hold(stream)

        def later():
            with stream:
                return draw(generator)

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(later)
            first = draw(generator)
            assert not waiting.done()
            gate.open()
            second = waiting.result()
        alone = torch.Generator("openreg").manual_seed(1)
        assert torch.equal(first, draw(alone))
        assert torch.equal(second, draw(alone))
