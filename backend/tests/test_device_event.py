"""Events of the device: records, waits for them, and times."""

import ctypes
from ctypes import c_float

import pytest

import _device as d
from _device import refused

pytestmark = pytest.mark.one_mode

DISABLE_TIMING = 2
GONE = "is not an event, or was destroyed"


@pytest.fixture
def streams():
    """Two streams of device 0 and one of device 1."""
    made = [d.make_stream(), d.make_stream()]
    d.set_device(1)
    made.append(d.make_stream())
    d.set_device(0)
    yield made
    for stream in made:
        d.call("orStreamDestroy", stream)


@pytest.fixture
def event():
    event = d.make_event()
    yield event
    d.call("orEventDestroy", event)


def is_done(event):
    return d.is_done("orEventQuery", event)


def elapsed(start, end):
    return d.result(c_float, "orEventElapsedTime", start, end)


@pytest.mark.proves("emulator.orEventQuery")
def test_event_without_a_record_is_done_and_orders_nothing(event, streams):
    assert is_done(event)
    d.call("orEventSynchronize", event)
    d.wait_event(streams[0], event)
    assert d.is_done("orStreamQuery", streams[0])


def test_record_on_an_idle_stream_is_done(event, streams):
    d.record(event, streams[0])
    assert is_done(event)
    d.record(event)
    d.call("orEventSynchronize", event)
    assert is_done(event)


def test_record_in_a_turn_stands_for_what_the_turn_has_run(event, streams, log):
    with d.turn(streams[0]):
        d.launch(log.kernel("in turn"), streams[0])
        d.record(event, streams[0])
        assert is_done(event)
        d.call("orEventSynchronize", event)
        d.wait_event(streams[0], event)
        d.wait_event(streams[1], event)
    assert log == ["in turn"]


@pytest.mark.proves("emulator.orEventRecord")
@pytest.mark.queued
def test_record_is_done_when_earlier_work_is(event, streams, gate, log):
    gate.hold(streams[0])
    d.launch(log.kernel("kernel"), streams[0])
    d.record(event, streams[0])
    assert not is_done(event)
    assert log == []
    gate.open()
    d.call("orEventSynchronize", event)
    assert is_done(event)
    assert log == ["kernel"]


@pytest.mark.queued
def test_record_does_not_stand_for_later_work(event, streams, gate, log):
    d.record(event, streams[0])
    gate.hold(streams[0])
    d.launch(log.kernel("later"), streams[0])
    d.call("orEventSynchronize", event)
    assert is_done(event)
    assert log == []


@pytest.mark.proves("emulator.orEventSynchronize")
@pytest.mark.queued
def test_recording_again_forgets_the_earlier_record(event, streams, gate):
    gate.hold(streams[0])
    d.record(event, streams[0])
    assert not is_done(event)
    d.record(event, streams[1])  # idle
    assert is_done(event)
    d.record(event, streams[0])
    assert not is_done(event)
    gate.open()
    d.call("orEventSynchronize", event)


@pytest.mark.proves("emulator.orStreamWaitEvent")
@pytest.mark.queued
@pytest.mark.parametrize("consumer", [1, 2])
def test_wait_orders_streams_even_of_two_devices(
    event, streams, gate, log, consumer
):
    gate.hold(streams[0])
    d.launch(log.kernel("producer"), streams[0])
    d.record(event, streams[0])
    d.wait_event(streams[consumer], event)
    d.launch(log.kernel("consumer"), streams[consumer])
    assert not d.is_done("orStreamQuery", streams[consumer])
    assert log == []
    gate.open()
    d.synchronize(streams[consumer])
    assert log == ["producer", "consumer"]


@pytest.mark.queued
def test_default_stream_waits_and_then_queues(event, streams, gate, log):
    gate.hold(streams[0])
    d.launch(log.kernel("producer"), streams[0])
    d.record(event, streams[0])
    d.wait_event(None, event)
    assert d.library.orStreamRunsInline(None) == 0
    d.launch(log.kernel("default"))
    assert log == []
    gate.open()
    d.synchronize()
    assert log == ["producer", "default"]


@pytest.mark.queued
@pytest.mark.parametrize("then", ["record again", "destroy"])
def test_wait_keeps_the_record_that_it_found(streams, gate, log, then):
    event, second = d.make_event(), d.Gate()
    gate.hold(streams[0])
    d.launch(log.kernel("first"), streams[0])
    d.record(event, streams[0])
    d.wait_event(streams[1], event)
    d.launch(log.kernel("waited"), streams[1])
    if then == "record again":
        second.hold(streams[0])
        d.record(event, streams[0])
    else:
        d.call("orEventDestroy", event)
    gate.open()
    d.synchronize(streams[1])
    assert log == ["first", "waited"]
    if then == "record again":
        assert not is_done(event)
        second.open()
        d.call("orEventSynchronize", event)
        d.call("orEventDestroy", event)


@pytest.mark.queued
def test_wait_for_a_done_record_costs_nothing(event, streams):
    d.record(event, streams[0])
    d.wait_event(streams[1], event)
    assert d.is_done("orStreamQuery", streams[1])


@pytest.mark.queued
def test_event_is_recorded_behind_anothers_turn(event, streams, log):
    first = streams[0]
    with d.turn_of_another_thread(first, lambda: log.append("turn")) as go_on:
        d.record(event, first)
        assert not is_done(event)
        go_on.set()
        d.call("orEventSynchronize", event)
        assert log == ["turn"]


# Times


@pytest.mark.proves("emulator.orEventElapsedTime")
def test_elapsed_time_is_in_milliseconds(streams):
    start, end = d.make_event(), d.make_event()
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    d.call("orEventRecord", start, streams[0])
    d.call("orLaunchKernel", streams[0], b"sleep", sleep, 20000, None)
    d.call("orEventRecord", end, streams[0])
    d.call("orEventSynchronize", end)
    milliseconds = elapsed(start, end)
    assert milliseconds >= 20
    assert elapsed(end, start) == -milliseconds
    assert elapsed(end, end) == 0
    for event in (start, end):
        d.call("orEventDestroy", event)


@pytest.mark.proves("errors.codes.orErrorNotReady")
@pytest.mark.queued
def test_elapsed_time_of_a_pending_record_is_not_ready(event, streams, gate):
    start = d.make_event()
    d.record(start, streams[0])
    gate.hold(streams[0])
    d.record(event, streams[0])
    d.library.orGetLastError()
    answer = d.library.orEventElapsedTime(ctypes.byref(c_float()), start, event)
    assert d.library.orGetErrorName(answer) == b"orErrorNotReady"
    gate.open()
    d.call("orEventSynchronize", event)
    assert elapsed(start, event) > 0
    d.call("orEventDestroy", start)


@pytest.mark.proves(
    "messages.the-events-are-of-devices", "messages.both-events-must-be"
)
def test_elapsed_time_needs_two_records_with_timing_of_one_device(
    event, streams
):
    untimed, unrecorded = d.make_event(DISABLE_TIMING), d.make_event()
    d.set_device(1)
    other = d.make_event()
    d.set_device(0)
    d.record(event, streams[0])
    d.record(untimed, streams[0])
    d.record(other, streams[2])
    for one in (untimed, unrecorded):
        for pair in ((event, one), (one, event)):
            with refused(
                "orErrorInvalidResourceHandle", "both events must be recorded"
            ):
                elapsed(*pair)
    with refused(
        "orErrorInvalidResourceHandle", "the events are of devices 0 and 1"
    ):
        elapsed(event, other)
    with refused("orErrorInvalidValue", "milliseconds is NULL"):
        d.call("orEventElapsedTime", None, event, event)
    for one in (untimed, unrecorded, other):
        d.call("orEventDestroy", one)


# Handles


@pytest.mark.proves("messages.the-stream-of-device")
def test_event_is_recorded_on_streams_of_its_device(event, streams):
    with refused(
        "orErrorInvalidResourceHandle", "of device 0, the stream of device 1"
    ):
        d.record(event, streams[2])
    assert is_done(event)
    d.record(event, streams[0])


@pytest.mark.proves("emulator.orEventDestroy", "messages.or-was-destroyed")
def test_destroyed_and_foreign_events_are_refused(event, streams):
    gone = d.make_event()
    d.call("orEventDestroy", gone)
    for handle in (gone, None, 8, streams[0]):
        for name, *arguments in [
            ("orEventQuery", handle),
            ("orEventSynchronize", handle),
            ("orEventDestroy", handle),
            ("orEventRecord", handle, streams[0]),
            ("orStreamWaitEvent", streams[0], handle),
            ("orEventElapsedTime", ctypes.byref(c_float()), handle, event),
            ("orEventElapsedTime", ctypes.byref(c_float()), event, handle),
        ]:
            with refused("orErrorInvalidResourceHandle", GONE):
                d.call(name, *arguments)
    with refused("orErrorInvalidResourceHandle", "is not a stream"):
        d.record(event, event)


@pytest.mark.proves("emulator.orEventCreate", "messages.expected-0-or-2")
def test_event_is_made_with_flags_that_are_known():
    for flags in (1, 4, 3):
        with refused(
            "orErrorInvalidValue", f"flags are {flags}; expected 0 or 2"
        ):
            d.make_event(flags)
    with refused("orErrorInvalidValue", "event is NULL"):
        d.call("orEventCreate", None, 0)
