"""What is captured does not run, and each launch of its graph runs it."""

import ctypes
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import _device as d
from _device import Log, Pointer


class Node(NamedTuple):
    name: str
    stream: int
    after: list[int]


def end_capture(stream: Pointer) -> Pointer:
    graph = ctypes.c_void_p()
    d.call("orStreamEndCapture", stream, ctypes.byref(graph))
    return graph.value


@contextmanager
def captured(stream: Pointer) -> Iterator[list[Pointer]]:
    """Captures what is launched inside, and fills the list with the graph."""
    d.call("orStreamBeginCapture", stream)
    graph: list[Pointer] = []
    yield graph
    graph.append(end_capture(stream))


def replay(graph: Pointer, stream: Pointer = None) -> None:
    d.call("orGraphLaunch", graph, stream)
    d.synchronize(stream)


def is_capturing(stream: Pointer) -> bool:
    return d.library.orStreamGetCapture(stream) != 0


def nodes(graph: Pointer, folder: Path) -> list[Node]:
    """What the picture of a graph shows."""
    file = folder / "graph.dot"
    d.call("orGraphDebugDotPrint", graph, bytes(file))
    text = file.read_text()
    edges = [
        (int(before), int(place))
        for before, place in re.findall(r"(\d+) -> (\d+);", text)
    ]
    return [
        Node(name, int(stream), [a for a, b in edges if b == int(place)])
        for place, name, stream in re.findall(
            r'(\d+) \[label="([^"]+)\\nstream (\d+)"\];', text
        )
    ]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def stream() -> Iterator[Pointer]:
    made = d.make_stream()
    yield made
    assert not is_capturing(made)
    d.synchronize(made)
    d.call("orStreamDestroy", made)


@pytest.fixture
def other() -> Iterator[Pointer]:
    made = d.make_stream()
    yield made
    assert not is_capturing(made)
    d.call("orStreamDestroy", made)


def is_usable(stream: Pointer, log: Log) -> None:
    """The stream runs what is launched, and waits for it."""
    d.launch(log.kernel("after"), stream)
    d.synchronize(stream)
    assert log.pop() == "after"


@pytest.mark.proves(
    "emulator.orStreamBeginCapture",
    "emulator.orStreamGetCapture",
    "emulator.orGraphLaunch",
)
def test_what_is_captured_runs_at_each_launch_in_order(log, stream):
    with captured(stream) as graph:
        assert is_capturing(stream)
        for number in range(3):
            d.launch(log.kernel(number), stream)
        d.launch_host(log.host("host"), stream)
        assert log == []
    d.synchronize(stream)
    assert log == []
    for where in (stream, None):
        replay(graph[0], where)
        assert log == [0, 1, 2, "host"]
        log.clear()
    d.call("orGraphDestroy", graph[0])
    is_usable(stream, log)


@pytest.mark.proves("messages.it-would-keep-what-every-thread")
def test_a_default_stream_is_not_captured(log):
    with d.refused(
        "orErrorStreamCaptureUnsupported",
        "it would keep what every thread launches there",
    ):
        d.call("orStreamBeginCapture", None)
    is_usable(None, log)


def test_what_another_thread_launches_is_captured_too(log, stream):
    with captured(stream) as graph:
        launch = threading.Thread(
            target=d.launch, args=(log.kernel("kept"), stream)
        )
        launch.start()
        launch.join()
        assert log == []
    replay(graph[0])
    assert log == ["kept"]
    d.call("orGraphDestroy", graph[0])


def work_in_turn(stream: Pointer, log: Log) -> None:
    """What a thread may do in a turn that it had before the capture."""
    event, block = d.make_event(), d.malloc(16)
    pageable = ctypes.create_string_buffer(16)
    d.launch(log.kernel("kernel"), stream)
    d.launch_host(log.host("host"), stream)
    assert log.pop() == "host"
    assert log.pop() == "kernel"
    d.call("orMemsetAsync", block, 7, 16, stream)
    to_host = ctypes.addressof(pageable), block, 16, d.DEFAULT, stream
    d.call("orMemcpyAsync", *to_host)
    assert pageable.raw == b"\7" * 16
    d.record(event, stream)
    d.call("orEventSynchronize", event)
    d.wait_event(stream, event)
    d.synchronize(stream)
    assert d.is_done("orStreamQuery", stream)
    assert d.library.orStreamRunsInline(stream)
    assert not is_capturing(stream)
    with d.turn(stream):
        d.launch(log.kernel("nested"), stream)
        assert log.pop() == "nested"
    with d.refused("orErrorNotPermitted", "holds its turn"):
        d.call("orStreamBeginCapture", stream)
    d.free(block)


@pytest.mark.proves("graph-turn")
def test_a_turn_that_began_before_a_capture_is_no_part_of_it(
    log, stream, tmp_path
):
    ended = threading.Event()

    def in_turn() -> None:
        work_in_turn(stream, log)
        ended.set()

    with d.turn_of_another_thread(stream, in_turn) as go_on:
        d.call("orStreamBeginCapture", stream)
        d.launch(log.kernel("kept"), stream, name=b"kept")
        go_on.set()
        assert ended.wait(d.PATIENCE)
        graph = end_capture(stream)
    assert [node.name for node in nodes(graph, tmp_path)] == ["kept"]
    assert log == []
    replay(graph, stream)
    assert log == ["kept"]
    d.call("orGraphDestroy", graph)


@pytest.mark.queued
def test_what_was_launched_before_still_runs(log, stream):
    gate = d.Gate()
    gate.hold(stream)
    d.launch(log.kernel("before"), stream)
    with captured(stream) as graph:
        d.launch(log.kernel("kept"), stream)
        gate.open()
    d.synchronize(stream)
    assert log == ["before"]
    d.call("orGraphDestroy", graph[0])


@pytest.mark.proves("emulator.orGraphDestroy", "messages.or-was-destroyed")
def test_arguments_are_released_with_the_last_launch(log, stream):
    release = log.keep(d.Release(lambda args: log.append(("released", args))))
    with captured(stream) as graph:
        d.launch(log.kernel("kept"), stream, 7, release)
    for _ in range(2):
        replay(graph[0], stream)
    assert log == ["kept", "kept"]
    d.call("orGraphDestroy", graph[0])
    assert log == ["kept", "kept", ("released", 7)]
    with d.refused(
        "orErrorInvalidResourceHandle", "is not a graph, or was destroyed"
    ):
        replay(graph[0], stream)


@pytest.mark.queued
def test_a_pending_launch_outlives_its_graph(log, stream):
    gate = d.Gate()
    with captured(stream) as graph:
        d.launch(log.kernel("kept"), stream)
    gate.hold(stream)
    d.call("orGraphLaunch", graph[0], stream)
    d.call("orGraphDestroy", graph[0])
    assert log == []
    gate.open()
    d.synchronize(stream)
    assert log == ["kept"]


def test_copies_and_sets_have_the_addresses_of_the_capture(stream):
    first, second = d.malloc(64), d.malloc(64)
    pinned = d.malloc_host(64)
    with captured(stream) as graph:
        d.call("orMemsetAsync", first, 5, 64, stream)
        d.call("orMemcpyAsync", second, first, 64, d.DEFAULT, stream)
        d.call("orMemcpyAsync", pinned, second, 64, d.DEFAULT, stream)
    d.memset(first, 1, 64)
    d.memset(second, 1, 64)
    ctypes.memset(pinned, 1, 64)
    replay(graph[0], stream)
    assert d.read(second, 64) == ctypes.string_at(pinned, 64) == b"\5" * 64
    d.call("orGraphDestroy", graph[0])
    d.free_host(pinned)
    for pointer in (first, second):
        d.free(pointer)


@pytest.mark.proves("emulator.orGraphDebugDotPrint")
def test_streams_joined_by_events_are_branches(log, stream, other, tmp_path):
    event, back = d.make_event(), d.make_event()
    with captured(stream) as graph:
        d.launch(log.kernel("a"), stream, name=b"a")
        d.record(event, stream)
        d.wait_event(other, event)
        assert is_capturing(other)
        d.launch(log.kernel("b"), other, name=b"b")
        d.launch(log.kernel("c"), stream, name=b"c")
        d.record(back, other)
        d.wait_event(stream, back)
        d.launch(log.kernel("d"), stream, name=b"d")
    assert not is_capturing(other)
    seen = nodes(graph[0], tmp_path)
    assert [(node.name, node.after) for node in seen] == [
        ("a", []),
        ("b", [0]),
        ("c", [0]),
        ("d", [1, 2]),
    ]
    places = [node.stream for node in seen]
    assert places[0] == places[2] == places[3] != places[1]
    replay(graph[0], stream)
    assert log == ["a", "b", "c", "d"]
    is_usable(other, log)
    d.call("orGraphDestroy", graph[0])


@pytest.mark.proves(
    "emulator.orStreamEndCapture",
    "errors.codes.orErrorStreamCaptureInvalidated",
    "messages.the-capture-is-broken",
)
def test_work_that_is_not_joined_gives_no_graph(log, stream, other):
    event = d.make_event()
    d.call("orStreamBeginCapture", stream)
    d.record(event, stream)
    d.wait_event(other, event)
    d.launch(log.kernel("lost"), other)
    match = "the capture is broken, and gives no graph: .* was not joined"
    with d.refused("orErrorStreamCaptureInvalidated", match):
        end_capture(stream)
    for each in (stream, other):
        is_usable(each, log)
    assert log == []


def test_a_stream_that_only_waited_needs_no_joining(log, stream, other):
    event = d.make_event()
    with captured(stream) as graph:
        d.launch(log.kernel("kept"), stream)
        d.record(event, stream)
        d.wait_event(other, event)
    replay(graph[0], stream)
    assert log == ["kept"]
    d.call("orGraphDestroy", graph[0])


BREAKERS = {
    "turn": lambda stream, event: d.call("orStreamBeginTurn", stream, b"t"),
    "synchronize": lambda stream, event: d.synchronize(stream),
    "query": lambda stream, event: d.call("orStreamQuery", stream),
    "device": lambda stream, event: d.call("orDeviceSynchronize"),
    "reset": lambda stream, event: d.call("orDeviceReset"),
    "outside": lambda stream, event: d.wait_event(stream, event),
}


@pytest.mark.proves("errors.codes.orErrorStreamCaptureUnsupported")
@pytest.mark.parametrize("how", BREAKERS)
def test_a_call_that_needs_the_work_done_breaks_the_capture(
    how, log, stream, other
):
    event = d.make_event()
    d.record(event, other)
    d.call("orStreamBeginCapture", stream)
    d.launch(log.kernel("kept"), stream)
    with d.refused("orErrorStreamCaptureUnsupported", "cannot be captured"):
        BREAKERS[how](stream, event)
    with d.refused("orErrorStreamCaptureInvalidated", "is broken"):
        d.launch(log.kernel("after it"), stream)
    with d.refused("orErrorStreamCaptureInvalidated", "is broken"):
        end_capture(stream)
    is_usable(stream, log)
    assert log == []


@pytest.mark.parametrize("to_host", [True, False])
def test_pageable_memory_is_no_end_of_a_captured_copy(to_host, log, stream):
    block = d.malloc(16)
    pageable = ctypes.create_string_buffer(16)
    ends = [ctypes.addressof(pageable), block]
    d.call("orStreamBeginCapture", stream)
    with d.refused(
        "orErrorStreamCaptureUnsupported", "Memcpy .* cannot be captured"
    ):
        dst, src = ends if to_host else reversed(ends)
        d.call("orMemcpyAsync", dst, src, 16, d.DEFAULT, stream)
    with d.refused("orErrorStreamCaptureInvalidated"):
        end_capture(stream)
    is_usable(stream, log)
    d.free(block)


@pytest.mark.proves(
    "messages.says-nothing-to-the-host", "messages.a-capture-that-has-ended"
)
def test_an_event_of_a_capture_says_nothing_to_the_host(log, stream, other):
    event, start = d.make_event(), d.make_event()
    d.record(start, stream)
    with captured(stream) as graph:
        d.launch(log.kernel("kept"), stream)
        d.record(event, stream)
        for ask in ("orEventQuery", "orEventSynchronize"):
            with d.refused(
                "orErrorStreamCaptureUnsupported", "says nothing to the host"
            ):
                d.call(ask, event)
        with d.refused(
            "orErrorStreamCaptureUnsupported", "says nothing to the host"
        ):
            d.result(ctypes.c_float, "orEventElapsedTime", start, event)
    match = "was recorded in a capture that has ended"
    with d.refused("orErrorInvalidResourceHandle", match):
        d.wait_event(other, event)
    d.record(event, stream)
    d.call("orEventSynchronize", event)
    d.call("orGraphDestroy", graph[0])


@pytest.mark.parametrize("where", ["default", "turn"])
def test_a_stream_that_must_run_its_work_does_not_join(
    where, log, stream, other
):
    event = d.make_event()
    place = None if where == "default" else other
    with d.turn(other):
        d.call("orStreamBeginCapture", stream)
        d.launch(log.kernel("kept"), stream)
        d.record(event, stream)
        with d.refused(
            "orErrorStreamCaptureUnsupported",
            "on a default stream, or by a thread that has its turn",
        ):
            d.wait_event(place, event)
        with d.refused("orErrorStreamCaptureInvalidated"):
            end_capture(stream)
        is_usable(place, log)
    is_usable(stream, log)
    assert log == []


@pytest.mark.proves("messages.the-stream-is-being-captured-already")
def test_two_captures_do_not_meet(log, stream, other):
    event = d.make_event()
    d.call("orStreamBeginCapture", other)
    with captured(stream) as graph:
        d.launch(log.kernel("kept"), stream)
        d.record(event, other)
    with d.refused(
        "orErrorNotPermitted", "the stream is being captured already"
    ):
        d.call("orStreamBeginCapture", other)
    d.call("orStreamBeginCapture", stream)
    with d.refused("orErrorStreamCaptureUnsupported", "another capture"):
        d.wait_event(stream, event)
    with d.refused("orErrorStreamCaptureInvalidated"):
        end_capture(other)
    empty = end_capture(stream)
    for each in (graph[0], empty):
        d.call("orGraphDestroy", each)


@pytest.mark.proves("messages.no-capture-began-on-this-stream")
def test_only_the_stream_that_began_ends_a_capture(log, stream, other):
    event = d.make_event()
    with captured(stream) as graph:
        d.record(event, stream)
        d.wait_event(other, event)
        for each in (other, None):
            with d.refused(
                "orErrorNotPermitted", "no capture began on this stream"
            ):
                end_capture(each)
        with d.refused("orErrorNotPermitted", "being captured"):
            d.call("orStreamDestroy", other)
    d.call("orGraphDestroy", graph[0])


def test_a_turn_cannot_be_captured_from_inside(stream):
    with d.turn(stream), d.refused("orErrorNotPermitted", "holds its turn"):
        d.call("orStreamBeginCapture", stream)


def test_a_kernel_that_fails_is_named_and_ends_the_launch(log, stream):
    def failing(args: object) -> int:
        d.library.orSetKernelError(b"index 7 is out of range")
        return 9

    with captured(stream) as graph:
        d.launch(log.kernel("first"), stream)
        d.launch(log.keep(d.Kernel(failing)), stream, name=b"gather")
        d.launch(log.kernel("never"), stream)
    match = "kernel graph .*: gather: index 7 is out of range"
    with d.refused("orErrorLaunchFailure|orErrorDeviceFailed", match):
        replay(graph[0])
    assert log == ["first"]
    d.call("orDeviceReset")
    d.call("orGraphDestroy", graph[0])
    is_usable(stream, log)


def test_a_graph_in_a_graph(log, stream):
    with captured(stream) as inner:
        d.launch(log.kernel("inner"), stream)
    with captured(stream) as outer:
        d.launch(log.kernel("before"), stream)
        d.call("orGraphLaunch", inner[0], stream)
    d.call("orGraphDestroy", inner[0])
    replay(outer[0], stream)
    assert log == ["before", "inner"]
    d.call("orGraphDestroy", outer[0])


def test_launches_of_one_graph_do_not_overlap(log, stream, other):
    inside, most = [0], [0]

    def work(args: object) -> int:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.001)  # lets go of the lock of Python
        inside[0] -= 1
        return 0

    with captured(stream) as graph:
        for _ in range(4):
            d.launch(log.keep(d.Kernel(work)), stream)
    threads = [
        threading.Thread(target=replay, args=(graph[0], each))
        for each in (stream, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    d.call("orGraphDestroy", graph[0])


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return d.build("device_graphs.cpp", tmp_path_factory.mktemp("graphs"))


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["auto", "async", "blocking"])
def test_many_threads_capture_and_launch(driver, mode):
    """What threads do at a time has the same results as in any order."""
    done = subprocess.run(
        [driver, "400"],
        env={**os.environ, "OPENREG_LAUNCH": mode},
        capture_output=True,
        text=True,
        timeout=d.PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "graphs replayed, nothing lost\nfailures told, nothing lost\n"
    )


@pytest.mark.proves("messages.cannot-write-to")
def test_what_is_missing_is_refused(stream):
    with d.refused("orErrorInvalidValue", "graph is NULL"):
        d.call("orStreamEndCapture", stream, None)
    with captured(stream) as graph:
        pass
    for path in (None, b"/no/such/folder/x.dot"):
        with d.refused("orErrorInvalidValue", "cannot write to"):
            d.call("orGraphDebugDotPrint", graph[0], path)
    d.call("orGraphDestroy", graph[0])
    with d.refused(
        "orErrorInvalidResourceHandle", "is not a graph, or was destroyed"
    ):
        d.call("orGraphDebugDotPrint", graph[0], b"x.dot")
