"""Events: marks in a stream that streams and the host can wait for."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch

from torch_openreg.openreg.testing import Record, sleep, trace

openreg = torch.openreg


@pytest.mark.proves(
    "stream.events.Event",
    "stream.events.Event.device",
    "stream.events.Event.event_id",
)
@pytest.mark.parametrize(
    "make", [openreg.Event, lambda: torch.Event("openreg"), torch.Event]
)
def test_an_event_belongs_to_no_device_until_it_is_recorded(make) -> None:
    event = make()
    assert isinstance(event, torch.Event)
    assert event.device.index is None
    assert event.event_id == 0
    event.record(openreg.Stream(1))
    assert event.device == torch.device("openreg", 1)
    assert event.event_id != 0


def test_an_event_that_was_never_recorded_is_done_and_orders_nothing() -> None:
    event = openreg.Event()
    stream = openreg.Stream()
    assert event.query()
    event.synchronize()
    event.wait(stream)
    stream.wait_event(event)
    assert stream.query()


@pytest.mark.proves("stream.events.Event.synchronize")
@pytest.mark.queued
def test_it_stands_for_all_work_before_it_and_none_after(hold) -> None:
    stream = openreg.Stream()
    first = hold(stream)
    event = stream.record_event()
    second = hold(stream)
    assert not event.query()
    first.open()
    event.synchronize()
    assert event.query()
    assert not stream.query()
    second.open()


@pytest.mark.proves("stream.events.Event.record")
@pytest.mark.queued
def test_record_takes_the_current_stream_unless_one_is_named(
    side, hold
) -> None:
    gate = hold()
    event = openreg.Event()
    event.record()
    assert not event.query()
    other = openreg.Event()
    other.record(openreg.Stream())
    assert other.query()
    gate.open()


@pytest.mark.proves("stream.events.Event.wait")
@pytest.mark.queued
def test_wait_takes_the_current_stream_unless_one_is_named(side, hold) -> None:
    one = openreg.Stream()
    gate = hold(one)
    event = one.record_event()
    event.wait()
    assert not side.query()
    gate.open()
    side.synchronize()


@pytest.mark.proves("stream.events.Event.query")
@pytest.mark.queued
def test_recorded_again_it_stands_for_the_new_record(hold) -> None:
    one, two = openreg.Stream(), openreg.Stream()
    event = openreg.Event()
    event.record(one)
    event.synchronize()
    gate = hold(two)
    event.record(two)
    assert not event.query()
    event.record(one)
    assert event.query()
    gate.open()


@pytest.mark.proves("event-mark-kept")
@pytest.mark.queued
def test_who_waited_before_keeps_the_record_of_then(hold) -> None:
    source, early, late = (openreg.Stream() for _ in range(3))
    event = openreg.Event()
    first = hold(source)
    event.record(source)
    early.wait_event(event)
    second = hold(source)
    event.record(source)
    late.wait_event(event)
    first.open()
    early.synchronize()
    assert not late.query()
    second.open()
    late.synchronize()


@pytest.mark.queued
def test_a_wait_for_a_record_that_was_replaced_still_ends(hold) -> None:
    """PyTorch makes and drops an event for each wait_stream."""
    source, waits = openreg.Stream(), openreg.Stream()
    gate = hold(source)
    event = source.record_event()
    waits.wait_event(event)
    del event
    assert not waits.query()
    gate.open()
    waits.synchronize()


@pytest.mark.queued
def test_streams_of_another_device_can_wait(hold) -> None:
    one, two = openreg.Stream(0), openreg.Stream(1)
    gate = hold(one)
    event = one.record_event()
    two.wait_event(event)
    assert not two.query()  # it waits, and does nothing else
    gate.open()
    two.synchronize()
    assert one.query()


def test_it_cannot_be_recorded_on_another_device() -> None:
    event = openreg.Event()
    event.record(openreg.Stream(0))
    with pytest.raises(RuntimeError, match="device") as error:
        event.record(openreg.Stream(1))
    assert "0" in str(error.value)
    assert "1" in str(error.value)
    assert event.device == torch.device("openreg", 0)
    event.record(openreg.Stream(0))
    event.synchronize()


def test_a_stream_that_does_not_exist_is_refused() -> None:
    stream = torch.Stream(stream_id=129, device_index=0, device_type=20)
    event = openreg.Event()
    with pytest.raises(RuntimeError, match="There is no stream 129"):
        event.record(stream)
    assert event.device.index is None
    event.record(openreg.Stream())
    with pytest.raises(RuntimeError, match="There is no stream 129"):
        event.wait(stream)


class TestTime:
    def timed(self, work=lambda: None) -> tuple[torch.Event, torch.Event]:
        start = openreg.Event(enable_timing=True)
        end = openreg.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        return start, end

    @pytest.mark.proves("stream.events.Event.elapsed_time")
    @pytest.mark.queued
    def test_it_is_that_of_the_stream_in_milliseconds(self, side, hold) -> None:
        before = time.monotonic_ns()
        gate = hold()  # so that the host records both at once
        start, end = self.timed(lambda: sleep(20))
        gate.open()
        end.synchronize()
        took = (time.monotonic_ns() - before) / 1e6
        # A sleep is never shorter than it should be, nor longer than the test.
        assert 20 <= start.elapsed_time(end) <= took
        assert end.elapsed_time(start) == -start.elapsed_time(end)

    def test_an_event_takes_the_default_streams_time_too(self) -> None:
        start, end = self.timed(lambda: sleep(5))
        end.synchronize()
        assert start.elapsed_time(end) >= 5

    @pytest.mark.queued
    def test_it_counts_from_when_the_stream_came_to_it(
        self, side, hold
    ) -> None:
        gate = hold()
        start, end = self.timed()
        opened = []

        def open_gate() -> None:
            opened.append(time.monotonic_ns())
            gate.open()

        threading.Timer(0.1, open_gate).start()
        end.synchronize()
        since = (time.monotonic_ns() - opened[0]) / 1e6
        assert start.elapsed_time(end) <= since

    @pytest.mark.queued
    def test_events_that_are_not_done_have_none(self, side, hold) -> None:
        gate = hold()
        start, end = self.timed()
        with pytest.raises(RuntimeError, match="must be completed"):
            start.elapsed_time(end)
        gate.open()
        end.synchronize()
        start.elapsed_time(end)

    def test_nor_have_events_without_timing(self) -> None:
        start, end = openreg.Event(), openreg.Event()
        start.record()
        end.record()
        with pytest.raises(ValueError, match="enable_timing=True"):
            start.elapsed_time(end)

    def test_nor_have_events_without_a_record(self) -> None:
        start = openreg.Event(enable_timing=True)
        end = openreg.Event(enable_timing=True)
        for recorded in (start, end):
            with pytest.raises(ValueError, match="recorded"):
                start.elapsed_time(end)
            recorded.record()
        end.synchronize()
        assert start.elapsed_time(end) >= 0

    def test_nor_have_events_of_two_devices(self) -> None:
        start = openreg.Event(enable_timing=True)
        end = openreg.Event(enable_timing=True)
        start.record(openreg.default_stream(0))
        end.record(openreg.default_stream(1))
        openreg.synchronize(0)
        openreg.synchronize(1)
        with pytest.raises((RuntimeError, ValueError), match="device"):
            start.elapsed_time(end)


@pytest.mark.proves(
    "stream.events.Event.from_ipc_handle", "stream.events.Event.ipc_handle"
)
def test_an_event_is_not_shared_between_processes() -> None:
    with pytest.raises(NotImplementedError, match="another process"):
        openreg.Event(interprocess=True)
    event = openreg.Event()
    with pytest.raises(NotImplementedError, match="ipc is not supported"):
        event.ipc_handle()
    with pytest.raises(NotImplementedError, match="ipc is not supported"):
        torch.Event.from_ipc_handle(torch.device("openreg"), b"handle")


def test_blocking_is_accepted_as_in_torch_cuda() -> None:
    event = openreg.Event(blocking=True)
    event.record()
    event.synchronize()
    assert event.query()


def test_ten_thousand_events_are_made_and_gone(side) -> None:
    x = torch.zeros(1, device="openreg")
    for _ in range(10_000):
        side.record_event()
    x.add_(1)
    assert x.item() == 1


class TestWaits:
    """Every wait lets other Python threads run: here, to open the gate."""

    @pytest.mark.queued
    @pytest.mark.parametrize(
        "wait",
        [
            lambda stream, event, x: stream.synchronize(),
            lambda stream, event, x: event.synchronize(),
            lambda stream, event, x: openreg.synchronize(),
            lambda stream, event, x: torch.accelerator.synchronize(),
            lambda stream, event, x: x.item(),
            lambda stream, event, x: x.cpu(),
            lambda stream, event, x: torch.ones(1).to("openreg"),
            lambda stream, event, x: x.cumsum(0),
            lambda stream, event, x: x.normal_(),
            lambda stream, event, x: x.nonzero(),
            lambda stream, event, x: x.copy_(torch.ones(1, dtype=torch.int8)),
            lambda stream, event, x: torch.nn.functional.dropout(x, 0.5),
        ],
    )
    def test_without_the_interpreters_lock(self, wait, side, hold) -> None:
        x = torch.zeros(1, device="openreg")
        gate = hold()
        event = side.record_event()
        opened = threading.Event()

        def open_gate() -> None:
            opened.set()
            gate.open()

        threading.Timer(0.02, open_gate).start()
        wait(side, event, x)
        assert opened.is_set()
        assert event.query()

    @pytest.mark.queued
    def test_of_a_backward_pass_that_has_begun(self, side, hold) -> None:
        """The pass itself says so, and lets the other thread hear it."""
        x = torch.zeros(1, device="openreg", requires_grad=True)
        loss = x.softmax(0).sum()  # whose backward takes its turn
        gate = hold()
        event = side.record_event()
        begun = threading.Event()
        loss.register_hook(lambda _: begun.set())

        def open_gate() -> None:
            begun.wait()
            gate.open()

        thread = threading.Thread(target=open_gate)
        thread.start()
        loss.backward()
        assert event.query()
        thread.join()

    @pytest.mark.queued
    def test_another_thread_launches_meanwhile(self, side, hold) -> None:
        """What is waited for comes from a thread that gets no other chance."""
        done = []
        gate = hold()
        turn = threading.Lock()

        def launch() -> None:
            with turn, openreg.stream(openreg.Stream()):
                done.append(torch.ones(4, device="openreg").sum().item())
                gate.open()

        with turn:
            thread = threading.Thread(target=launch)
            thread.start()
            # Until the wait, this thread would have to be interrupted.
            interval = sys.getswitchinterval()
            sys.setswitchinterval(1000)
        try:
            side.synchronize()
        finally:
            sys.setswitchinterval(interval)
        thread.join()
        assert done == [4]


@pytest.mark.queued
class TestTrace:
    """Of two streams that an event orders."""

    COPY = "Memcpy HtoD (Pinned -> Device)"
    KERNELS = ("aten::add.Tensor", "aten::mul.Tensor")

    def work(self) -> None:
        one, two = openreg.Stream(), openreg.Stream()
        x = torch.zeros(4).pin_memory()
        with openreg.stream(one):
            y = x.to("openreg", non_blocking=True)
            z = y + 1
        two.wait_stream(one)
        with openreg.stream(two):
            z = z * 2
        openreg.synchronize()

    def test_tells_launch_start_and_end_of_each_piece_of_work(self) -> None:
        with trace() as records:
            self.work()
        assert records
        pieces: dict[int, list[Record]] = {}
        for record in records:
            pieces.setdefault(record.work, []).append(record)
        for piece in pieces.values():
            assert [x.phase for x in piece] == ["launch", "start", "end"]
            assert len({(x.kind, x.name, x.device, x.stream) for x in piece})
            assert piece[0].time_ns <= piece[1].time_ns <= piece[2].time_ns
        names = [(x[0].kind, x[0].name) for x in pieces.values()]
        assert [name for _, name in names] == [self.COPY, *self.KERNELS]
        assert {kind for kind, _ in names[1:]} <= {"kernel", "turn"}
        assert records[0].bytes == 16

    def test_order_of_one_stream_and_of_an_event(self) -> None:
        with trace() as records:
            self.work()
        when = {(x.name, x.phase): x.time_ns for x in records}
        add, mul = self.KERNELS
        assert when[self.COPY, "end"] <= when[add, "start"]
        assert when[add, "end"] <= when[mul, "start"]
