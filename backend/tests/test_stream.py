"""Streams: what orders work, and what does not."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
import torch

import _device
from _fresh import prints, run
from _tensors import in_backward
from _threads import in_thread
from torch_openreg.openreg.testing import sleep

openreg = torch.openreg
STREAM_TYPE = 20  # of PrivateUse1, in torch.Stream(device_type=)


@pytest.fixture
def made():
    """A stream that the C API made, as ExternalStream takes it."""
    handles: list[Any] = []

    def make(device: int = 0) -> int:
        before = _device.get_device()
        _device.set_device(device)
        handles.append(_device.make_stream())
        _device.set_device(before)
        return handles[-1]

    yield make
    for handle in handles:
        _device.call("orStreamDestroy", handle)


class TestIdentity:
    @pytest.mark.proves(
        "stream.streams.Stream.device",
        "stream.streams.Stream.device_index",
        "stream.streams.Stream.device_type",
    )
    def test_a_stream_says_where_it_is(self) -> None:
        stream = openreg.Stream(1)
        assert isinstance(stream, torch.Stream)
        assert stream.device == torch.device("openreg", 1)
        assert stream.device_index == 1
        assert stream.device_type == STREAM_TYPE
        assert stream.stream_id % 2 == 1
        assert "device_type=openreg, device_index=1" in repr(stream)

    @pytest.mark.parametrize(
        "device", [1, "openreg:1", torch.device("openreg", 1)]
    )
    def test_a_device_is_an_index_a_name_or_a_device(self, device) -> None:
        assert openreg.Stream(device).device_index == 1
        assert openreg.current_stream(device).device_index == 1
        assert openreg.default_stream(device).device_index == 1

    def test_the_current_device_unless_one_is_named(self) -> None:
        with openreg.device(1):
            assert openreg.Stream().device_index == 1
            assert openreg.current_stream().device_index == 1
            assert openreg.default_stream().device_index == 1
            assert torch.Stream().device_index == 1
            assert torch.Stream("openreg").device_index == 1

    @pytest.mark.proves("stream.streams.default_stream")
    def test_the_default_stream_is_number_0_of_its_device(self) -> None:
        for device in (0, 1):
            stream = openreg.default_stream(device)
            assert stream.stream_id == 0
            assert stream.device_index == device
            assert stream == openreg.current_stream(device)

    @pytest.mark.proves("stream.streams.Stream.stream_id")
    def test_equal_streams_have_equal_hashes(self) -> None:
        stream = openreg.Stream()
        again = openreg.Stream(
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )
        generic = torch.Stream(
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )
        assert stream == again == generic
        assert len({stream, again, generic}) == 1
        assert again.native_handle == stream.native_handle
        assert stream != openreg.Stream()
        assert openreg.default_stream(0) != openreg.default_stream(1)

    @pytest.mark.proves("stream.streams.Stream")
    def test_streams_come_from_a_pool_in_turn(self) -> None:
        for priority in (0, -1):
            streams = [openreg.Stream(priority=priority) for _ in range(64)]
            assert len(set(streams)) == 32
            assert streams[:32] == streams[32:]
            assert len({s.native_handle for s in streams}) == 32
            assert {s.priority for s in streams} == {priority}

    def test_the_generic_class_shares_the_pool(self) -> None:
        ours = {openreg.Stream() for _ in range(32)}
        assert torch.Stream("openreg") in ours
        assert torch.Stream("openreg", priority=-1) not in ours

    def test_each_device_has_its_own_pool(self) -> None:
        here, there = openreg.Stream(0), openreg.Stream(1)
        assert here.native_handle != there.native_handle
        assert here != there

    @pytest.mark.proves(
        "messages.priority-of-0-or-below",
        "stream.streams.Stream.priority",
        "stream.streams.Stream.priority_range",
    )
    def test_priorities(self) -> None:
        least, greatest = openreg.Stream.priority_range()
        assert (least, greatest) == (0, -1)
        assert openreg.Stream().priority == 0
        assert openreg.Stream(priority=-1).priority == -1
        assert openreg.Stream(priority=-7).priority == -1
        assert openreg.default_stream().priority == 0
        with pytest.raises(RuntimeError, match="priority of 0 or below"):
            openreg.Stream(priority=1)

    @pytest.mark.proves("messages.there-is-no-stream")
    @pytest.mark.parametrize("stream_id", [129, 131, 8, -2, -1, 2**40 + 1])
    def test_one_that_does_not_exist_is_refused(self, stream_id: int) -> None:
        expected = f"There is no stream {stream_id} on openreg:1"
        identity = {
            "stream_id": stream_id,
            "device_index": 1,
            "device_type": STREAM_TYPE,
        }
        with pytest.raises(RuntimeError, match=expected):
            openreg.Stream(**identity)
        generic = torch.Stream(**identity)
        for use in (
            generic.query,
            generic.synchronize,
            generic.record_event,
            lambda: openreg.set_stream(generic),
            lambda: openreg.stream(generic).__enter__(),
        ):
            with pytest.raises(RuntimeError, match=expected):
                use()
        assert openreg.current_device() == 0
        assert openreg.current_stream(1).stream_id == 0

    def test_other_devices_are_refused(self) -> None:
        with pytest.raises(ValueError, match="Expected an openreg device"):
            openreg.Stream("cpu")
        with pytest.raises(RuntimeError, match="index is out of range"):
            openreg.Stream(2)
        with pytest.raises(RuntimeError, match="index is out of range"):
            openreg.current_stream(7)
        with pytest.raises(ValueError, match="Expected an openreg device"):
            openreg.set_stream(torch.Stream("cpu"))


class TestExternal:
    @pytest.mark.proves("stream.streams.ExternalStream")
    def test_a_stream_of_the_c_api_is_taken_as_it_is(self, made) -> None:
        handle = made()
        stream = openreg.ExternalStream(handle)
        assert stream.native_handle == handle
        assert stream.device_index == 0
        assert stream == openreg.ExternalStream(handle)
        with openreg.stream(stream):
            x = torch.ones(4, device="openreg") + 1
            assert x.tolist() == [2] * 4

    @pytest.mark.queued
    def test_work_of_both_sides_is_in_one_order(self, made, hold) -> None:
        handle = made(1)
        stream = openreg.ExternalStream(handle, 1)
        x = torch.zeros(8, dtype=torch.uint8, device="openreg:1")
        openreg.synchronize(1)
        gate = hold(stream)
        _device.call("orMemsetAsync", x.data_ptr(), 3, 8, handle)
        with openreg.stream(stream):
            y = x + 1
        assert not _device.is_done("orStreamQuery", handle)
        gate.open()
        _device.synchronize(handle)
        assert y.tolist() == [4] * 8

    def test_the_default_streams_handle_is_the_default_stream(self) -> None:
        handle = openreg.default_stream(1).native_handle
        assert openreg.ExternalStream(handle, 1) == openreg.default_stream(1)

    def test_a_handle_of_no_stream_or_another_device_is_refused(
        self, made
    ) -> None:
        handle = made(1)
        refused = f"There is no stream {handle} on openreg:0"
        with pytest.raises(RuntimeError, match=refused):
            openreg.ExternalStream(handle, 0)
        with pytest.raises(RuntimeError, match="no stream 4096 on openreg:0"):
            openreg.ExternalStream(4096)

    def test_one_that_was_destroyed_is_refused(self) -> None:
        handle = _device.make_stream()
        stream = openreg.ExternalStream(handle)
        _device.call("orStreamDestroy", handle)
        with pytest.raises(RuntimeError, match="There is no stream"):
            stream.query()
        assert torch.ones(2, device="openreg").sum().item() == 2


class TestCurrent:
    @pytest.mark.proves("stream.streams.stream")
    def test_a_stream_switches_the_device_and_both_go_back(self) -> None:
        stream = openreg.Stream(1)
        for enter in (openreg.stream, lambda s: s):
            with pytest.raises(ZeroDivisionError), enter(stream):
                assert openreg.current_device() == 1
                assert openreg.current_stream() == stream
                assert torch.accelerator.current_stream() == stream
                assert torch.empty(1, device="openreg").device.index == 1
                1 / 0  # noqa: B018
            assert openreg.current_device() == 0
            assert openreg.current_stream(0).stream_id == 0
            assert openreg.current_stream(1).stream_id == 0

    @pytest.mark.proves("stream.streams.StreamContext")
    def test_contexts_nest_and_are_used_again(self) -> None:
        one, two = openreg.Stream(0), openreg.Stream(1)
        outer, inner = openreg.stream(one), openreg.stream(two)
        assert isinstance(outer, openreg.StreamContext)
        for _ in range(2):
            with outer:
                with inner:
                    assert openreg.current_stream() == two
                    with outer:
                        assert openreg.current_device() == 0
                        assert openreg.current_stream() == one
                    assert openreg.current_stream() == two
                assert openreg.current_stream() == one
                assert openreg.current_stream(1).stream_id == 0
        assert openreg.current_stream().stream_id == 0

    def test_no_stream_changes_nothing(self) -> None:
        stream = openreg.Stream(1)
        with openreg.stream(stream), openreg.stream(None):
            assert openreg.current_stream() == stream
        assert openreg.current_device() == 0

    @pytest.mark.proves("messages.expected-a-torch-stream")
    def test_what_is_no_stream_is_refused_by_type(self) -> None:
        before = openreg.current_stream()
        openreg.set_stream(None)
        for use in (openreg.set_stream, openreg.stream):
            with pytest.raises(TypeError, match=r"Expected a torch\.Stream"):
                use(3)
        assert openreg.current_stream() == before

    @pytest.mark.proves("stream.streams.set_stream")
    def test_set_stream_sets_its_device_too(self) -> None:
        stream = openreg.Stream(1)
        for set_stream in (openreg.set_stream, torch.accelerator.set_stream):
            openreg.set_device(0)
            set_stream(stream)
            assert openreg.current_device() == 1
            assert torch.accelerator.current_stream() == stream
            assert openreg.current_stream(1) == stream
            assert openreg.current_stream(0).stream_id == 0
            openreg.set_stream(openreg.default_stream(1))

    @pytest.mark.proves("stream-per-thread", "stream.streams.current_stream")
    def test_each_thread_has_its_own(self) -> None:
        stream = openreg.Stream()
        with openreg.stream(stream):
            assert in_thread(openreg.current_stream).stream_id == 0
            in_thread(lambda: openreg.set_stream(openreg.Stream()))
            assert openreg.current_stream() == stream

    def test_a_device_context_keeps_each_devices_stream(self) -> None:
        stream = openreg.Stream(1)
        openreg.set_stream(stream)
        with torch.accelerator.device_index(0):
            assert torch.accelerator.current_stream().stream_id == 0
            with torch.accelerator.device_index(1):
                assert torch.accelerator.current_stream() == stream
        openreg.set_stream(openreg.default_stream(1))


class TestOrder:
    @pytest.mark.proves("stream-order")
    @pytest.mark.queued
    def test_work_of_one_stream_runs_in_order(self, side) -> None:
        x = torch.zeros(1, device="openreg")
        for _ in range(100):
            x.add_(1).mul_(2).sub_(x * 0.5)
        expected = torch.zeros(1)
        for _ in range(100):
            expected.add_(1).mul_(2).sub_(expected * 0.5)
        assert torch.equal(x.cpu(), expected)

    @pytest.mark.queued
    def test_streams_do_not_wait_for_each_other(self, hold) -> None:
        one, two = openreg.Stream(), openreg.Stream()
        x = torch.zeros(2, device="openreg")
        openreg.synchronize()
        gate = hold(one)
        with openreg.stream(one):
            x.fill_(1)
        with openreg.stream(two):
            assert x.tolist() == [0, 0]  # a race, which the gate decides
        assert two.query()
        assert not one.query()
        gate.open()
        one.synchronize()
        assert x.tolist() == [1, 1]

    @pytest.mark.proves(
        "stream.streams.Stream.wait_stream",
        "stream.streams.Stream.wait_event",
        "stream.streams.Stream.record_event",
    )
    @pytest.mark.queued
    @pytest.mark.parametrize(
        "order",
        [
            lambda first, then: then.wait_stream(first),
            lambda first, then: then.wait_event(first.record_event()),
            lambda first, then: first.record_event().wait(then),
            lambda first, then: first.record_event(openreg.Event()).wait(then),
        ],
    )
    def test_an_event_orders_them(self, order, hold) -> None:
        one, two = openreg.Stream(), openreg.Stream()
        x = torch.zeros(2, device="openreg")
        openreg.synchronize()
        gate = hold(one)
        with openreg.stream(one):
            x.fill_(1)
        order(one, two)
        assert not two.query()  # it waits, and has nothing else to do
        with openreg.stream(two):
            y = x + 1
        gate.open()
        two.synchronize()
        with openreg.stream(two):
            assert y.tolist() == [2, 2]

    @pytest.mark.queued
    def test_also_from_one_device_to_the_other(self, hold) -> None:
        one, two = openreg.Stream(0), openreg.Stream(1)
        gate = hold(one)
        two.wait_stream(one)
        assert not two.query()
        with openreg.stream(two):
            x = torch.zeros(2, device="openreg:1")
            x.fill_(1)
        gate.open()
        two.synchronize()
        assert one.query()

    @pytest.mark.queued
    def test_the_default_stream_is_one_like_the_others(self, hold) -> None:
        """As in CUDA with per-thread default streams."""
        gate = hold(openreg.default_stream())
        side = openreg.Stream()
        with openreg.stream(side):
            x = torch.ones(2, device="openreg") + 1
            assert x.tolist() == [2, 2]
        gate.open()
        openreg.synchronize()

    @pytest.mark.proves(
        "stream.streams.Stream.query", "stream.streams.Stream.synchronize"
    )
    @pytest.mark.queued
    def test_query_and_synchronize(self, side, hold) -> None:
        assert side.query()
        gate = hold()
        assert not side.query()
        gate.open()
        side.synchronize()
        assert side.query()

    @pytest.mark.queued
    @pytest.mark.parametrize(
        "synchronize", [openreg.synchronize, torch.accelerator.synchronize]
    )
    def test_a_device_waits_for_all_its_streams(
        self, synchronize, hold
    ) -> None:
        streams = [openreg.Stream(1) for _ in range(3)]
        x = torch.zeros(3, device="openreg:1")
        openreg.synchronize(1)
        gates = [hold(stream) for stream in streams]
        for place, stream in enumerate(streams):
            with openreg.stream(stream):
                x[place].fill_(place + 1)
        synchronize(0)  # has nothing to wait for
        assert not any(stream.query() for stream in streams)
        for gate in gates:
            threading.Timer(0.02, gate.open).start()
        synchronize(1)
        assert all(stream.query() for stream in streams)
        assert x.tolist() == [1, 2, 3]

    @pytest.mark.queued
    def test_a_copy_between_devices_has_its_place_in_both_streams(
        self, hold
    ) -> None:
        one, two = openreg.Stream(0), openreg.Stream(1)
        openreg.set_stream(two)
        openreg.set_stream(one)
        x = torch.zeros(4, device="openreg:0")
        y = torch.zeros(4, device="openreg:1")
        before, after = hold(one), hold(two)
        x.fill_(5)  # on one, before the copy
        y.fill_(1)  # on two, before the copy
        y.copy_(x)
        x.fill_(6)  # comes after the copy has read
        z = y + 1  # comes after the copy has written
        before.open()
        assert not one.query()  # the copy waits for two as well
        after.open()
        one.synchronize()
        two.synchronize()
        assert y.tolist() == [5] * 4
        assert z.tolist() == [6] * 4
        assert x.tolist() == [6] * 4
        openreg.set_stream(openreg.default_stream(1))
        openreg.set_stream(openreg.default_stream(0))


class TestCopies:
    @pytest.mark.queued
    def test_from_pinned_memory_is_queued(self, side, hold) -> None:
        x = torch.arange(4.0).pin_memory()
        gate = hold()
        y = x.to("openreg", non_blocking=True)
        assert not side.query()
        x.fill_(9)  # too early: the copy has not read it
        gate.open()
        assert y.tolist() == [9] * 4

    @pytest.mark.queued
    def test_to_pinned_memory_is_queued(self, side, hold) -> None:
        x = torch.arange(4.0, device="openreg")
        y = torch.full((4,), -1.0).pin_memory()
        gate = hold()
        x.add_(1)
        y.copy_(x, non_blocking=True)
        assert y.tolist() == [-1] * 4  # not made yet
        gate.open()
        side.synchronize()
        assert y.tolist() == [1, 2, 3, 4]

    @pytest.mark.queued
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_pinned_memory_that_converts_is_queued(
        self, dtype, transposed, side, hold
    ) -> None:
        values = torch.arange(6.0).view(2, 3)
        if transposed:
            source = values.t().contiguous().pin_memory().t()
        else:
            source = values.to(dtype, copy=True).pin_memory()
        target = torch.full_like(source, -1).pin_memory()
        there = torch.zeros(2, 3, device="openreg")
        back = values.to("openreg", torch.float16)
        gate = hold()
        there.copy_(source, non_blocking=True)
        target.copy_(back, non_blocking=True)
        assert not side.query()
        assert target.eq(-1).all()  # not made yet
        gate.open()
        side.synchronize()
        assert torch.equal(there.cpu(), values)
        assert torch.equal(target.float(), values)

    @pytest.mark.queued
    @pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
    def test_a_result_on_the_host_is_pinned_and_comes_later(
        self, dtype, side, hold
    ) -> None:
        x = torch.zeros(3, device="openreg")
        gate = hold()
        x.fill_(5)
        y = x.to("cpu", dtype, non_blocking=True)
        assert y.is_pinned()
        assert not side.query()
        gate.open()
        side.synchronize()
        assert y.tolist() == [5] * 3

    @pytest.mark.queued
    def test_a_pinned_buffer_lives_until_it_was_read(self, side, hold) -> None:
        x = torch.arange(1024.0).pin_memory()
        address = x.data_ptr()
        gate = hold()
        y = x.to("openreg", non_blocking=True)
        del x
        others = [torch.full((1024,), -1.0).pin_memory() for _ in range(4)]
        assert address not in {other.data_ptr() for other in others}
        gate.open()
        assert torch.equal(y.cpu(), torch.arange(1024.0))

    @pytest.mark.queued
    def test_so_does_a_pinned_slice(self, side, hold) -> None:
        x = torch.arange(1024.0).pin_memory()
        gate = hold()
        y = x[512:].to("openreg", non_blocking=True)
        del x
        others = [torch.full((1024,), -1.0).pin_memory() for _ in range(4)]
        gate.open()
        assert torch.equal(y.cpu(), torch.arange(512.0, 1024))
        assert len(others) == 4

    @pytest.mark.queued
    def test_from_pageable_memory_has_read_it(self, side, hold) -> None:
        x = torch.arange(4.0)
        gate = hold()
        y = x.to("openreg", non_blocking=True)
        x.fill_(9)
        gate.open()
        assert y.tolist() == [0, 1, 2, 3]

    @pytest.mark.queued
    @pytest.mark.parametrize("change", ["dtype", "strides"])
    def test_so_has_one_that_converts(self, change: str, side, hold) -> None:
        x = torch.arange(6.0).view(2, 3)
        y = torch.zeros(3, 2, dtype=torch.int32, device="openreg")
        gate = hold()
        threading.Timer(0.02, gate.open).start()
        source = x.t() if change == "strides" else x.reshape(3, 2)
        expected = source.int().clone()
        y.copy_(source, non_blocking=True)
        x.fill_(9)
        assert torch.equal(y.cpu(), expected)

    @pytest.mark.queued
    def test_into_pageable_memory_has_been_made(self, side, hold) -> None:
        x = torch.zeros(4, device="openreg")
        y = torch.full((4,), -1.0)
        gate = hold()
        x.fill_(3)
        threading.Timer(0.02, gate.open).start()
        y.copy_(x, non_blocking=True)
        assert y.tolist() == [3] * 4

    @pytest.mark.queued
    @pytest.mark.parametrize("pinned", [True, False])
    def test_a_blocking_copy_waits(self, pinned: bool, side, hold) -> None:
        x = torch.zeros(4, pin_memory=pinned)
        y = torch.empty(4, device="openreg")
        gate = hold()
        threading.Timer(0.02, gate.open).start()
        y.copy_(x)
        assert side.query()
        assert y.tolist() == [0] * 4


class TestRecordStream:
    """A block that another stream still reads when its tensor is freed."""

    def read(self, hold, protect) -> list[float]:
        """What stream two reads of a tensor that stream one made and freed."""
        one, two = openreg.Stream(), openreg.Stream()
        with openreg.stream(one):
            x = torch.ones(1000, device="openreg")
        one.synchronize()
        address = x.data_ptr()
        gate = hold(two)
        with openreg.stream(two):
            y = x * 2
        protect(x, one, two, gate)
        del x
        with openreg.stream(one):
            other = torch.full((1000,), -7.0, device="openreg")
        one.synchronize()
        self.reused = other.data_ptr() == address
        gate.open()
        two.synchronize()
        with openreg.stream(two):
            return sorted(set(y.tolist()))

    @pytest.mark.queued
    def test_without_it_the_read_is_wrong(self, hold) -> None:
        assert self.read(hold, lambda x, one, two, gate: None) == [-14]
        assert self.reused

    @pytest.mark.queued
    def test_with_it_the_read_is_right(self, hold) -> None:
        def protect(x, one, two, gate):
            x.record_stream(two)

        assert self.read(hold, protect) == [2]
        assert not self.reused

    @pytest.mark.queued
    def test_with_an_event_the_read_is_right(self, hold) -> None:
        def protect(x, one, two, gate):
            one.wait_stream(two)
            gate.open()

        assert self.read(hold, protect) == [2]
        assert self.reused

    @pytest.mark.queued
    def test_on_its_own_stream_no_one_need_say(self, side, hold) -> None:
        x = torch.ones(1000, device="openreg")
        address = x.data_ptr()
        gate = hold()
        y = x * 2
        del x
        other = torch.full((1000,), -7.0, device="openreg")
        assert other.data_ptr() == address
        gate.open()
        assert set(y.tolist()) == {2}

    @pytest.mark.queued
    def test_the_block_comes_back_when_it_was_read(self, hold) -> None:
        def protect(x, one, two, gate):
            x.record_stream(two)

        before = openreg.memory_allocated()
        assert self.read(hold, protect) == [2]
        assert openreg.memory_allocated() == before


class TestAutograd:
    def model(self, device: str) -> tuple[torch.nn.Module, torch.Tensor]:
        torch.manual_seed(4)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 36, 16),
            torch.nn.Dropout(0.0),
            torch.nn.LayerNorm(16),
            torch.nn.Linear(16, 3),
        )
        x = torch.randn(5, 1, 8, 8)
        return net.to(device), x.to(device)

    def gradients(self, net: torch.nn.Module) -> list[torch.Tensor]:
        return [p.grad.cpu() for p in net.parameters()]

    @pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
    def test_backward_runs_on_the_forwards_stream(
        self, device: str, request: pytest.FixtureRequest
    ) -> None:
        host, x = self.model("cpu")
        # Bits depend on the number of threads, and the thread that runs the
        # device's backward may have been given another than this one.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        request.addfinalizer(lambda: torch.set_num_threads(threads))
        host(x).log_softmax(1).square().mean().backward()
        net, y = self.model(device)
        stream = openreg.Stream(device)
        with openreg.stream(stream):
            sleep(5)
            loss = net(y).log_softmax(1).square().mean()
        loss.register_hook(lambda _: torch.set_num_threads(1))
        loss.backward()
        stream.synchronize()
        for got, expected in zip(
            self.gradients(net), self.gradients(host), strict=True
        ):
            assert torch.equal(got, expected)

    @pytest.mark.queued
    def test_backward_sees_the_forwards_stream_as_current(self, side) -> None:
        seen = []

        x = torch.ones(2, device="openreg", requires_grad=True)
        y = in_backward(x, lambda: seen.append(openreg.current_stream())).sum()
        with openreg.stream(openreg.default_stream()):
            y.backward()
        assert seen == [side]

    @pytest.mark.queued
    def test_two_forwards_on_two_streams_meet_in_one_backward(
        self, hold
    ) -> None:
        one, two = openreg.Stream(), openreg.Stream()
        x = torch.arange(4.0, device="openreg")
        openreg.synchronize()
        gate = hold(one)
        with openreg.stream(one):
            left = x.clone().requires_grad_()
            a = left * 3
        with openreg.stream(two):
            right = x.clone().requires_grad_()
            b = right.square()
        here = openreg.current_stream()
        here.wait_stream(one)
        here.wait_stream(two)
        assert not here.query()
        loss = (a + b).sum()
        gate.open()
        loss.backward()
        openreg.synchronize()
        assert loss.item() == 3 * 6 + 14
        assert left.grad.tolist() == [3, 3, 3, 3]
        assert right.grad.tolist() == [0, 2, 4, 6]


class TestTurns:
    def collide(self, rounds: int) -> None:
        """Two threads on one stream: one frees what its queued work uses, the
        other allocates in its turn."""
        stream = openreg.Stream()
        wrong = []

        def frees() -> None:
            with openreg.stream(stream):
                for value in range(rounds):
                    x = torch.full((256,), float(value), device="openreg")
                    y = x + 1
                    del x  # is still to be written, and then read
                    total = y.sum()
                    del y
                    if total.item() != 256 * (value + 1):
                        wrong.append(("frees", value))

        def allocates() -> None:
            with openreg.stream(stream):
                ones = torch.ones(256, device="openreg")
                expected = list(range(1, 257))
                for value in range(rounds):
                    z = ones.cumsum(0)  # its result is made in its turn
                    if z.tolist() != expected:
                        wrong.append(("allocates", value))

        threads = [
            threading.Thread(target=work)
            for work in (frees, allocates, frees, allocates)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_memory_made_in_a_turn_has_no_other_user(self) -> None:
        self.collide(rounds=150)

    @pytest.mark.stress
    def test_memory_made_in_a_turn_has_no_other_user_for_long(self) -> None:
        self.collide(rounds=10_000)


@pytest.mark.one_mode
class TestExit:
    def test_with_work_pending_or_held_or_running(self) -> None:
        """At exit no work is begun any more, and nobody waits for ever."""
        out = prints(
            """
            import torch
            from torch_openreg.openreg.testing import Gate, sleep
            side = torch.openreg.Stream()
            gate = Gate()
            gate.hold(side)
            with torch.openreg.stream(side):
                x = torch.ones(1000, device="openreg") + 1
            with torch.openreg.stream(torch.openreg.Stream(1)):
                sleep(50)
                y = torch.ones(1000, device="openreg:1") * 2
                gate.hold()
                sleep(100_000)
            print("leaving")
            """
        )
        assert out == "leaving\n"

    def test_while_another_thread_waits_for_a_closed_gate(self) -> None:
        process = run(
            """
            import os, sys, threading, torch
            from torch_openreg.openreg.testing import Gate
            gate = Gate()
            side = torch.openreg.Stream()
            gate.hold(side)
            thread = threading.Thread(target=side.synchronize)
            thread.start()
            print("leaving", flush=True)
            threading.Timer(0.2, gate.open).start()
            """
        )
        assert process.stdout == "leaving\n"
        assert process.returncode == 0


@pytest.mark.proves("stream.streams.Stream.native_handle")
def test_the_handle_is_the_devices(made) -> None:
    device = ctypes.c_int(-1)
    handle = openreg.Stream(1).native_handle
    _device.call("orStreamGetDevice", handle, ctypes.byref(device))
    assert device.value == 1
