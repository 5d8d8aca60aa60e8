"""Operators run on the current stream: at once, later, or in its turn."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import _device as d
from _threads import in_thread
from torch_openreg import _C
from torch_openreg.openreg.testing import Gate, sleep, trace

openreg = torch.openreg


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers that depend on the shape alone."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def n(high: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(high)
    return torch.randint(high, shape, generator=generator)


def last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last)


# Every operator that has a queued form: what it does and to what.
QUEUED = {
    "add": (lambda x, y: x + y, [r(3, 4), r(3, 4)]),
    "add alpha": (lambda x, y: torch.add(x, y, alpha=3), [r(3, 4), r(4)]),
    "add transposed": (lambda x, y: x.t() + y, [r(4, 3), r(3, 1)]),
    "add promoted": (lambda x, y: x + y, [n(9, 3, 4), r(3, 4)]),
    "add 0-dim": (lambda x, y: x + y, [r(3), r()]),
    "add double 0-dim": (
        lambda x, y: x + y,
        [r(3), r(dtype=torch.float64)],
    ),
    "add half": (lambda x, y: x + y, [r(5).half(), r(5).half()]),
    "add complex": (lambda x, y: x + y, [r(5).to(torch.complex64), r(5)]),
    "x + 1": (lambda x: x + 1, [r(3, 4)]),
    "integers + 1": (lambda x: x + 1, [n(9, 4)]),
    "integers + 0.5": (lambda x: x + 0.5, [n(9, 4)]),
    "bytes + 1": (lambda x: x + 1, [n(9, 4).byte()]),
    "bool + 1": (lambda x: x + 1, [n(2, 4).bool()]),
    "2 - x": (lambda x: 2 - x, [r(3, 4)]),
    "2 - integers": (lambda x: 2 - x, [n(9, 4)]),
    "add_": (lambda x, y: x.add_(y), [r(3, 4), r(4)]),
    "add_ alpha": (lambda x, y: x.add_(y, alpha=2), [r(3, 4), r(4)]),
    "add_ strided": (lambda x, y: x[::2].add_(y), [r(6, 4), r(4)]),
    "add_ 1": (lambda x: x.add_(1), [n(9, 4)]),
    "sub": (lambda x, y: x - y, [r(3, 4), r(3, 1)]),
    "sub alpha": (lambda x, y: torch.sub(x, y, alpha=0.5), [r(3), r(3)]),
    "sub_": (lambda x, y: x.sub_(y), [r(3, 4), r(3, 1)]),
    "mul": (lambda x, y: x * y, [r(3, 4), r(4)]),
    "mul promoted": (lambda x, y: x * y, [n(9, 3), r(3).double()]),
    "mul 2.5": (lambda x: x * 2.5, [n(9, 4)]),
    "mul_": (lambda x, y: x.mul_(y), [r(3, 4), r(4)]),
    "relu": (lambda x: x.relu(), [r(3, 4)]),
    "relu transposed": (lambda x: x.t().relu(), [r(3, 4)]),
    "relu_": (lambda x: x.relu_(), [r(3, 4)]),
    "fill_": (lambda x: x.fill_(2.5), [r(3, 4)]),
    "fill_ strided": (lambda x: x[:, 1].fill_(7), [n(9, 3, 4)]),
    "fill_ tensor": (lambda x, y: x.fill_(y), [r(3, 4), r()]),
    "zero_": (lambda x: x.zero_(), [r(3, 4)]),
    "zero_ strided": (lambda x: x.t()[1:].zero_(), [r(3, 4)]),
    "zeros": (lambda x: torch.zeros(3, 2, device=x.device), [r(1)]),
    "ones": (lambda x: torch.ones_like(x), [n(9, 4)]),
    "full": (lambda x: torch.full((2,), 7, device=x.device), [r(1)]),
    "copy_": (lambda x, y: x.copy_(y), [r(3, 4), r(4)]),
    "copy_ converting": (lambda x, y: x.copy_(y), [n(9, 3), r(3)]),
    "copy_ strided": (lambda x, y: x.t().copy_(y), [r(3, 4), r(4, 3)]),
    "copy_ conjugate": (
        lambda x, y: x.copy_(y.conj()),
        [r(3).to(torch.complex64), r(3, dtype=torch.complex64)],
    ),
    "clone": (lambda x: x.t().clone(), [r(3, 4)]),
    "contiguous": (lambda x: x.t().contiguous(), [r(3, 4)]),
    "to": (lambda x: x.to(torch.int16), [r(3, 4)]),
    "mm": (lambda x, y: x @ y, [r(3, 4), r(4, 5)]),
    "mm transposed": (lambda x, y: x.t() @ y.t(), [r(4, 3), r(5, 4)]),
    "mm empty": (lambda x, y: x @ y, [r(3, 0), r(0, 5)]),
    "mm integers": (lambda x, y: x @ y, [n(9, 3, 4), n(8, 4, 2)]),
    "addmm": (
        lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2),
        [r(5), r(3, 4), r(4, 5)],
    ),
    "linear": (
        lambda x, y, z: F.linear(x, y, z),
        [r(3, 4), r(5, 4), r(5)],
    ),
    "bmm": (lambda x, y: x @ y, [r(2, 3, 4), r(2, 4, 5)]),
    "softmax": (lambda x: x.softmax(1), [r(3, 4)]),
    "softmax strided": (lambda x: x.t().softmax(0), [r(3, 4)]),
    "softmax to float": (
        lambda x: x.softmax(-1, dtype=torch.float32),
        [r(3, 4).bfloat16()],
    ),
    "log_softmax": (lambda x: x.log_softmax(0), [r(3, 4)]),
    "sum": (lambda x: x.sum(), [r(3, 4)]),
    "sum dim": (lambda x: x.sum(1), [r(3, 4)]),
    "sum no dim": (lambda x: x.sum(None), [r(3, 4)]),
    "sum no dim keepdim": (lambda x: x.sum(None, keepdim=True), [r(3, 4)]),
    "sum of no dims": (lambda x: x.sum([]), [r(3, 4)]),
    "sum keepdim": (lambda x: x.sum((0, 2), keepdim=True), [r(3, 4, 2)]),
    "sum dtype": (lambda x: x.sum(0, dtype=torch.float64), [r(3, 4)]),
    "sum bool": (lambda x: x.sum(), [n(2, 9).bool()]),
    "index_select": (
        lambda x, y: x.index_select(1, y),
        [r(3, 4), torch.tensor([3, 0, 3])],
    ),
    "index_select last": (
        lambda x, y: x.index_select(-1, y),
        [r(3, 4).half(), torch.tensor([1, 2], dtype=torch.int32)],
    ),
    "embedding": (lambda x, y: F.embedding(y, x), [r(9, 4), n(9, 2, 3)]),
    "gather": (lambda x, y: x.gather(1, y), [r(3, 4), n(4, 3, 2)]),
    "conv1d": (
        lambda x, y, z: F.conv1d(x, y, z, padding=1),
        [r(2, 3, 8), r(4, 3, 3), r(4)],
    ),
    "conv2d": (
        lambda x, y, z: F.conv2d(x, y, z, stride=2),
        [r(2, 3, 8, 8), r(4, 3, 3, 3), r(4)],
    ),
    "conv2d no bias": (
        lambda x, y: F.conv2d(x, y, dilation=2),
        [r(2, 4, 8, 8), r(4, 4, 3, 3)],
    ),
    "conv2d groups": (
        lambda x, y: F.conv2d(x, y, groups=2),
        [r(2, 4, 8, 8), r(6, 2, 3, 3)],
    ),
    "conv2d unbatched": (
        lambda x, y: F.conv2d(x, y),
        [r(3, 8, 8), r(4, 3, 3, 3)],
    ),
    "conv2d channels last": (
        lambda x, y: F.conv2d(x, y),
        [last(r(2, 3, 8, 8)), r(4, 3, 3, 3)],
    ),
    "conv2d weight last": (
        lambda x, y: F.conv2d(x, y),
        [r(2, 3, 8, 8), last(r(4, 3, 3, 3))],
    ),
    "conv3d": (
        lambda x, y, z: F.conv3d(x, y, z),
        [r(2, 3, 5, 5, 5), r(4, 3, 3, 3, 3), r(4)],
    ),
    "conv3d channels last": (
        lambda x, y: F.conv3d(x, y),
        [
            r(2, 3, 5, 5, 5).to(memory_format=torch.channels_last_3d),
            r(4, 3, 3, 3, 3),
        ],
    ),
    "conv3d of doubles, channels last": (
        lambda x, y: F.conv3d(x, y),
        [
            r(2, 3, 5, 5, 5).double().to(memory_format=torch.channels_last_3d),
            r(4, 3, 3, 3, 3).double(),
        ],
    ),
    "conv_transpose1d": (
        lambda x, y: F.conv_transpose1d(x, y, stride=2, output_padding=1),
        [r(2, 3, 8), r(3, 4, 3)],
    ),
    "conv_transpose2d": (
        lambda x, y, z: F.conv_transpose2d(x, y, z, padding=1),
        [r(2, 3, 5, 5), r(3, 4, 3, 3), r(4)],
    ),
    "conv_transpose2d channels last": (
        lambda x, y: F.conv_transpose2d(x, y),
        [last(r(2, 3, 5, 5)), r(3, 4, 3, 3)],
    ),
    "conv_transpose3d": (
        lambda x, y: F.conv_transpose3d(x, y),
        [r(1, 2, 3, 3, 3), r(2, 2, 2, 2, 2)],
    ),
}

# A convolution may have workspace of its result's size, which on an idle stream
# is the device's. And this softmax is two operators, the first converts.
MAKES_MORE = ("conv1", "conv2", "conv3", "conv_", "softmax to float")

# Operators that run on the calling thread when the stream comes to them.
IN_TURN = {
    "sort": (lambda x: x.sort(descending=True), [r(3, 4)]),
    "cumsum": (lambda x: x.cumsum(1), [r(3, 4)]),
    "topk": (lambda x: x.topk(2), [r(3, 4)]),
    "relu of integers": (lambda x: x.relu(), [n(9, 4) - 4]),
    "nonzero": (lambda x: x.nonzero(), [n(2, 3, 4)]),
    "unique": (lambda x: x.unique(return_counts=True), [n(3, 12)]),
    "masked_select": (lambda x: x[x > 0], [r(3, 4)]),
    "cat": (lambda x, y: torch.cat([x, y]), [r(3), r(4)]),
    "out=": (lambda x, y: torch.sin(x, out=y), [r(3), torch.empty(0)]),
    "normal_": (lambda x: x.normal_(), [r(7)]),
    "bernoulli": (lambda x: x.sigmoid().bernoulli(), [r(7)]),
    "dropout": (lambda x: F.dropout(x, 0.5), [r(64)]),
    "item": (lambda x: x.item(), [r()]),
    "bool": (lambda x: bool(x), [torch.tensor(True)]),
    "tolist": (lambda x: x.tolist(), [r(3)]),
    "cpu": (lambda x: x.cpu(), [r(3, 4)]),
    "cpu strided": (lambda x: x.t()[1:].cpu() + 0, [r(3, 4)]),
    "cpu converting": (lambda x: x.to("cpu", torch.float64), [r(3)]),
    "numpy": (lambda x: x.cpu().numpy().tolist(), [r(3)]),
    "print": (lambda x: str(x.cpu()), [r(3)]),
    "allclose": (lambda x, y: torch.allclose(x, y), [r(3), r(3)]),
    "equal": (lambda x, y: torch.equal(x, y), [r(3), r(3)]),
}


def fresh(tensors: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    return [x.clone().to(device) for x in tensors]


def check(got: object, expected: object) -> None:
    """The bits, the dtype and the strides of the CPU."""
    if isinstance(expected, tuple):
        for one, other in zip(got, expected, strict=True):
            check(one, other)
    elif isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype
        assert got.stride() == expected.stride()
        host = got.cpu()
        torch.testing.assert_close(
            host, expected, rtol=0, atol=0, equal_nan=True
        )
    else:
        assert got == expected


def open_soon(gate: Gate) -> None:
    """Another Python thread opens the gate, if this one lets it run."""
    threading.Timer(0.03, gate.open).start()


class TestQueued:
    @pytest.mark.parametrize("name", QUEUED)
    def test_gives_the_cpus_result(self, name: str) -> None:
        work, tensors = QUEUED[name]
        expected = work(*fresh(tensors, "cpu"))
        for stream in (openreg.default_stream(), openreg.Stream()):
            with openreg.stream(stream):
                check(work(*fresh(tensors, "openreg")), expected)

    @pytest.mark.proves("inside-workspace")
    @pytest.mark.parametrize(
        "name", [x for x in QUEUED if not x.startswith(MAKES_MORE)]
    )
    def test_workspace_is_not_device_memory(self, name: str) -> None:
        """So that a launch mode takes no more of it than another."""
        work, tensors = QUEUED[name]
        for stream in (openreg.default_stream(), openreg.Stream()):
            with openreg.stream(stream):
                arguments = fresh(tensors, "openreg")
                openreg.synchronize()
                openreg.reset_peak_memory_stats()
                result = work(*arguments)
                openreg.synchronize()
                peak = openreg.max_memory_allocated()
                assert peak == openreg.memory_allocated()
            del arguments, result

    @pytest.mark.queued
    @pytest.mark.parametrize("name", QUEUED)
    def test_returns_before_the_kernel_ends(self, name, side, hold) -> None:
        work, tensors = QUEUED[name]
        expected = work(*fresh(tensors, "cpu"))
        arguments = fresh(tensors, "openreg")
        gate = hold()
        # Would block for ever if it waited. The arguments may go at once.
        result = work(*arguments)
        del arguments
        assert not side.query()
        gate.open()
        check(result, expected)
        assert side.query()

    @pytest.mark.queued
    def test_each_one_is_queued_itself(self, side, hold) -> None:
        """And not done by another operator that is waited for."""
        for name, (work, tensors) in QUEUED.items():
            arguments = fresh(tensors, "openreg")
            gate = hold()
            with trace() as records:
                work(*arguments)
            gate.open()
            launched = [x.name for x in records if x.phase == "launch"]
            assert launched, name
            assert not [x for x in records if x.phase != "launch"], name
            side.synchronize()

    @pytest.mark.queued
    def test_arguments_are_read_when_the_stream_comes_to_them(
        self, side, hold
    ) -> None:
        x = torch.zeros(4, device="openreg")
        gate = hold()
        y = x + 1
        x.fill_(7)
        z = x * 2
        gate.open()
        assert y.tolist() == [1] * 4
        assert z.tolist() == [14] * 4

    @pytest.mark.queued
    @pytest.mark.parametrize(
        "work", [torch.add, torch.sub, torch.mul], ids=lambda f: f.__name__
    )
    def test_a_0_dim_cpu_tensor_is_read_at_the_call(
        self, work, side, hold
    ) -> None:
        x = torch.arange(4.0, device="openreg")
        number = torch.tensor(3.0, dtype=torch.float64)
        expected = work(torch.arange(4.0), number)
        gate = hold()
        result = work(x, number)
        swapped = work(number, x)
        number.fill_(100)
        gate.open()
        check(result, expected)
        check(swapped, work(torch.tensor(3.0).double(), torch.arange(4.0)))

    @pytest.mark.queued
    def test_a_0_dim_cpu_tensor_may_be_a_conjugate_view(self, hold) -> None:
        x, number = r(3).to(torch.complex64), torch.tensor([1j, 2 + 3j])[1]
        on_device = x.to("openreg")
        gate = hold()
        product = on_device * number.conj()
        gate.open()
        check(product, x * (2 - 3j))

    @pytest.mark.queued
    def test_sizes_and_lists_belong_to_the_caller(self, side, hold) -> None:
        x = torch.ones(2, 3, 4, device="openreg")
        dims = [0, 2]
        gate = hold()
        result = x.sum(dims)
        dims[:] = [1, 1]
        gate.open()
        assert result.tolist() == [8, 8, 8]

    @pytest.mark.queued
    def test_on_the_default_stream_behind_pending_work(self, hold) -> None:
        x = torch.arange(4.0, device="openreg")
        gate = hold()
        y = (x + 1) * 2
        assert not openreg.current_stream().query()
        gate.open()
        assert y.tolist() == [2, 4, 6, 8]

    @pytest.mark.queued
    def test_on_the_stream_of_the_tensors_device(self, hold) -> None:
        x = torch.arange(4.0, device="openreg:1")
        other = openreg.Stream(1)
        gate = hold(other)
        with openreg.stream(other), openreg.device(0):
            assert openreg.current_device() == 0
            y = x + 1
        assert not other.query()
        assert openreg.default_stream(0).query()
        gate.open()
        other.synchronize()
        assert y.tolist() == [1, 2, 3, 4]

    def test_a_thread_count_is_the_callers(self, side) -> None:
        """A kernel gives the bits that the caller's threads would give."""
        before = torch.get_num_threads()
        x = r(1_000_003)
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                check(x.to("openreg").sum(), x.sum())
        finally:
            torch.set_num_threads(before)


class TestTurn:
    @pytest.mark.parametrize("name", IN_TURN)
    def test_gives_the_cpus_result(self, name: str, side) -> None:
        work, tensors = IN_TURN[name]
        torch.manual_seed(1)
        expected = work(*fresh(tensors, "cpu"))
        torch.manual_seed(1)
        check(work(*fresh(tensors, "openreg")), expected)

    @pytest.mark.proves("stream-turn")
    @pytest.mark.queued
    @pytest.mark.parametrize("name", IN_TURN)
    def test_comes_after_what_was_launched_before(
        self, name, side, hold
    ) -> None:
        """It waits without the interpreter's lock, or nobody opens the gate."""
        work, tensors = IN_TURN[name]
        torch.manual_seed(1)
        expected = work(*fresh(tensors, "cpu"))
        values = fresh(tensors, "openreg")
        arguments = [torch.zeros_like(x) for x in values]
        torch.manual_seed(1)
        gate = hold()
        for argument, value in zip(arguments, values, strict=True):
            argument.copy_(value)
        open_soon(gate)
        check(work(*arguments), expected)

    @pytest.mark.queued
    def test_the_copying_fallback_too(self, side, hold) -> None:
        with torch.library._scoped_library("openreg_launch", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: x * 2, "CPU")
            x = torch.zeros(3, device="openreg")
            gate = hold()
            x.fill_(4)
            open_soon(gate)
            y = torch.ops.openreg_launch.twice(x)
            assert y.tolist() == [8, 8, 8]

    def test_later_work_comes_after_it(self, side) -> None:
        x = torch.ones(4, device="openreg")
        sleep(20)
        y = x.cumsum(0)
        x.zero_()
        assert y.tolist() == [1, 2, 3, 4]

    @pytest.mark.queued
    def test_a_random_draw_is_never_pending(self, side, hold) -> None:
        gate = hold()
        open_soon(gate)
        torch.manual_seed(3)
        drawn = torch.rand(4, device="openreg")
        assert side.query()
        state = openreg.get_rng_state()
        more = torch.rand(4, device="openreg")
        openreg.set_rng_state(state)
        assert torch.equal(torch.rand(4, device="openreg"), more)
        torch.manual_seed(3)
        assert torch.equal(drawn.cpu(), torch.rand(4))


# Calls that the CPU refuses, too.
REFUSED = {
    "shapes": (lambda x, y: x + y, [r(3), r(4)]),
    "in-place shape": (lambda x, y: x.add_(y), [r(1, 3), r(2, 3)]),
    "in-place dtype": (lambda x, y: x.add_(y), [n(9, 3), r(3)]),
    "alpha": (lambda x, y: torch.add(x, y, alpha=0.5), [n(9, 3), n(9, 3)]),
    "bool minus bool": (lambda x: x - x, [n(2, 3).bool()]),
    "mm": (lambda x, y: torch.mm(x, y), [r(3, 4), r(3, 4)]),
    "mm dtypes": (lambda x, y: torch.mm(x, y), [r(3, 4), r(4, 3).double()]),
    "bmm": (lambda x, y: torch.bmm(x, y), [r(2, 3, 4), r(3, 4, 5)]),
    "addmm": (
        lambda x, y, z: torch.addmm(x, y, z),
        [r(7), r(3, 4), r(4, 5)],
    ),
    "softmax dim": (lambda x: x.softmax(2), [r(3, 4)]),
    "sum dim": (lambda x: x.sum(5), [r(3, 4)]),
    "gather dtype": (lambda x, y: x.gather(0, y), [r(3), r(3)]),
    "gather dims": (lambda x, y: x.gather(0, y), [r(3), n(2, 2, 2)]),
    "index_select dim": (lambda x, y: x.index_select(3, y), [r(3), n(2, 2)]),
    "index_select index": (
        lambda x, y: x.index_select(0, y),
        [r(3), n(2, 2, 2)],
    ),
    "index_select dtype": (lambda x, y: x.index_select(0, y), [r(3), r(2)]),
    "conv2d channels": (
        lambda x, y: F.conv2d(x, y),
        [r(1, 3, 8, 8), r(4, 2, 3, 3)],
    ),
    "conv2d kernel": (
        lambda x, y: F.conv2d(x, y),
        [r(1, 3, 2, 2), r(4, 3, 3, 3)],
    ),
    "conv2d bias": (
        lambda x, y, z: F.conv2d(x, y, z),
        [r(1, 3, 8, 8), r(4, 3, 3, 3), r(7)],
    ),
    "conv2d dtype": (
        lambda x, y: F.conv2d(x, y),
        [r(1, 3, 8, 8), r(4, 3, 3, 3).double()],
    ),
    "fill_ overflow": (lambda x: x.fill_(1000), [n(9, 3).byte()]),
    "fill_ overflow of a half": (lambda x: x.fill_(2**40), [r(3).half()]),
    "fill_ with an imaginary part": (lambda x: x.fill_(1j), [r(3).bfloat16()]),
    "copy_ shape": (lambda x, y: x.copy_(y), [r(3), r(4)]),
    "copy_ to nothing": (lambda x, y: x.copy_(y), [r(0, 3), r(2, 3)]),
    "copy_ of nothing": (lambda x, y: x.copy_(y), [r(2, 3), r(0, 3)]),
    "assign to nothing": (
        lambda x, y: x[3:].copy_(y),
        [r(3, 3), r(2, 3)],
    ),
    "copy_ expanded": (
        lambda x, y: x.expand(3, 4).copy_(y),
        [r(1, 4), r(3, 4)],
    ),
    "copy_ shifted": (lambda x: x[1:].copy_(x[:-1]), [r(6)]),
    "copy_ transposed": (lambda x: x.copy_(x.t()), [r(3, 3)]),
    "copy_ across dtypes": (
        lambda x: x.view(torch.int16)[1:9].copy_(x[:8]),
        [r(9)],
    ),
    "fill_ expanded": (
        lambda x, y: x.expand(3, 4).fill_(y[0]),
        [r(1, 4), r(1)],
    ),
    "index_select of nothing": (
        lambda x, y: x.index_select(0, y),
        [r(0, 4), n(2, 2)],
    ),
    "embedding of nothing": (
        lambda x, y: F.embedding(y, x),
        [r(0, 4), n(2, 2)],
    ),
}


@pytest.mark.parametrize("place", ["default", "side"])
def test_a_stride_of_zero_is_refused_before_sizes_are_asked(place) -> None:
    streams = {"default": openreg.default_stream(), "side": openreg.Stream()}
    x, weight = r(1, 3, 8, 8).to("openreg"), r(4, 3, 3, 3).to("openreg")
    with (
        openreg.stream(streams[place]),
        pytest.raises(RuntimeError, match="non-positive stride is not supp"),
    ):
        torch.ops.aten.convolution_overrideable(
            x, weight, None, [0, 0], [0, 0], [1, 1], False, [0, 0], 1
        )
    assert F.conv2d(x, weight).shape == (1, 4, 6, 6)


class TestRefused:
    @pytest.mark.parametrize("name", REFUSED)
    def test_at_the_call_in_the_cpus_words(self, name: str, side) -> None:
        work, tensors = REFUSED[name]
        with pytest.raises((RuntimeError, IndexError)) as cpu:
            work(*fresh(tensors, "cpu"))
        arguments = fresh(tensors, "openreg")
        with (
            trace() as records,
            pytest.raises(type(cpu.value)) as device,
        ):
            work(*arguments)
        assert first_line(device.value) == first_line(cpu.value)
        # Nothing is queued, though a kernel may refuse it in its turn.
        assert {record.kind for record in records} <= {"turn"}
        assert [x.cpu().equal(y) for x, y in zip(arguments, tensors)]  # noqa: B905
        assert (arguments[0] + 1).shape == tensors[0].shape

    @pytest.mark.queued
    @pytest.mark.parametrize("name", REFUSED)
    def test_with_work_pending_too(self, name, side, hold) -> None:
        work, tensors = REFUSED[name]
        with pytest.raises((RuntimeError, IndexError)) as cpu:
            work(*fresh(tensors, "cpu"))
        arguments = fresh(tensors, "openreg")
        gate = hold()
        open_soon(gate)  # for those that the alias kernel refuses, in its turn
        with pytest.raises(type(cpu.value)) as device:
            work(*arguments)
        assert first_line(device.value) == first_line(cpu.value)
        side.synchronize()
        for argument, before in zip(arguments, tensors, strict=True):
            check(argument, before)

    def test_tensors_of_two_devices(self, side) -> None:
        x = torch.ones(3, 3, device="openreg:0")
        y = torch.ones(3, 3, device="openreg:1")
        index = torch.zeros(3, dtype=torch.int64, device="openreg:1")
        expected = "Expected all tensors to be on the same device"
        with trace() as records:
            for other in (y, torch.ones(3, 3)):
                for work in (torch.add, torch.mm, torch.mul, torch.sub):
                    with pytest.raises(RuntimeError, match=expected):
                        work(x, other)
                with pytest.raises(RuntimeError, match=expected):
                    x.add_(other)
                with pytest.raises(RuntimeError, match=expected):
                    F.conv1d(x[None], other[None])
            for chosen in (torch.index_select, torch.gather):
                with pytest.raises(RuntimeError, match=expected):
                    chosen(x, 0, index)
        assert not records


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].replace("openreg:0", "cpu")


def raising(text: str, device: str) -> Callable[[], None]:
    """Launches a kernel of this name that raises it, in seven letters."""
    throw = ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc
    entry = ctypes.cast(throw, ctypes.c_void_p).value
    kernel = _C._compiled_kernel(text, entry)
    letters = int.from_bytes(text.encode(), sys.byteorder)
    x = torch.ones(1, device=device)
    return lambda: kernel(letters, x)


def said_by(call: Callable[[], None]) -> str:
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


@pytest.mark.one_mode  # a queued kernel has no caller to tell
def test_a_kernel_raises_to_its_own_caller_whatever_others_launch() -> None:
    first = raising("first", "openreg:0")
    second = raising("second", "openreg:1")
    heard: list[str] = []

    @d.TraceFunction
    def listen(record, user):
        """Keeps `first` between its kernel's error and its caller."""
        if (record.contents.phase, record.contents.name) == (2, b"first"):
            heard.append(in_thread(lambda: said_by(second)))

    function = ctypes.cast(listen, ctypes.c_void_p)
    listener = d.result(ctypes.c_void_p, "orTraceSubscribe", function, None)
    try:
        assert said_by(first) == "first"
    finally:
        d.call("orTraceUnsubscribe", listener)
    assert heard == ["second"]


class TestReads:
    @pytest.mark.queued
    @pytest.mark.parametrize(
        "read",
        [
            lambda x: x[0].item(),
            lambda x: x.cpu()[0].item(),
            lambda x: x.tolist()[0],
            lambda x: float(x[0]),
            lambda x: int(x[0]),
            lambda x: x.cpu().numpy()[0],
            lambda x: torch.empty(3).copy_(x)[0].item(),
            lambda x: torch.empty(3).pin_memory().copy_(x)[0].item(),
            lambda x: torch.empty(3).copy_(x, non_blocking=True)[0].item(),
            lambda x: float(repr(x).split("[")[1].split(",")[0]),
            lambda x: float(f"{x[0]}"),
            lambda x: 5 if (x == 5).all() else 0,
        ],
    )
    def test_never_come_before_the_write(self, read, side, hold) -> None:
        x = torch.zeros(3, device="openreg")
        gate = hold()
        x.fill_(5)
        open_soon(gate)
        assert read(x) == 5
