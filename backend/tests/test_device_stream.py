"""Streams of the device: order, turns, launch modes and copies."""

import ctypes
import threading
from ctypes import byref, c_int, c_void_p
from typing import Any

import pytest

import _device as d
from _device import refused

pytestmark = pytest.mark.one_mode

MODES = ["auto", "async", "blocking"]
DESTROYED = "is not a stream, or was destroyed"


@pytest.fixture
def stream():
    stream = d.make_stream()
    yield stream
    d.call("orStreamDestroy", stream)


def open_later(gate):
    threading.Timer(0.05, gate.open).start()


# Order


@pytest.mark.proves("stream-order")
def test_work_of_a_stream_runs_in_order(log, stream):
    for number in range(50):
        d.launch(log.kernel(number), stream)
    d.synchronize(stream)
    assert log == list(range(50))


@pytest.mark.queued
def test_launch_returns_before_the_work_is_done(log, stream, gate):
    gate.hold(stream)
    d.launch(log.kernel("kernel"), stream)
    assert not d.is_done("orStreamQuery", stream)
    assert log == []
    gate.open()
    d.synchronize(stream)
    assert d.is_done("orStreamQuery", stream)
    assert log == ["kernel"]


@pytest.mark.proves("emulator.orStreamQuery")
@pytest.mark.queued
def test_query_that_is_not_ready_is_not_an_error(stream, gate):
    d.library.orGetLastError()
    gate.hold(stream)
    assert not d.is_done("orStreamQuery", stream)
    assert d.library.orPeekAtLastError() == 0
    gate.open()
    d.synchronize(stream)


@pytest.mark.queued
def test_streams_do_not_wait_for_each_other(log, stream, gate):
    other = d.make_stream()
    gate.hold(stream)
    d.launch(log.kernel("held"), stream)
    d.launch(log.kernel("other"), other)
    d.launch(log.kernel("default"))
    d.synchronize(other)
    d.synchronize()
    assert sorted(log) == ["default", "other"]
    gate.open()
    d.synchronize(stream)
    d.call("orStreamDestroy", other)


@pytest.mark.proves("emulator.orStreamSynchronize")
@pytest.mark.queued
@pytest.mark.parametrize("wait", ["orStreamSynchronize", "orDeviceSynchronize"])
def test_synchronize_waits_for_held_work(log, stream, gate, wait):
    gate.hold(stream)
    d.launch(log.kernel("held"), stream)
    open_later(gate)
    d.call(wait, *([stream] if "Stream" in wait else []))
    assert log == ["held"]


@pytest.mark.queued
def test_arguments_are_released_after_their_kernel_ran(log, stream, gate):
    release = log.keep(d.Release(lambda args: log.append(("release", args))))
    gate.hold(stream)
    for args in (1, 2):
        d.launch(log.kernel(args), stream, args, release)
    gate.open()
    d.synchronize(stream)
    assert log == [1, ("release", 1), 2, ("release", 2)]


@pytest.mark.proves("emulator.orStreamWaitValue64")
def test_value_is_waited_for_even_when_it_is_there_already(log, stream, gate):
    gate.open()
    gate.hold(stream)
    d.launch(log.kernel("after"), stream)
    d.synchronize(stream)
    assert log == ["after"]


@pytest.mark.proves("messages.not-an-aligned-address-of-host")
@pytest.mark.parametrize("address", [None, 12, "device"])
def test_value_must_be_in_aligned_host_memory(stream, address):
    pointer = d.malloc(8)
    address = pointer if address == "device" else address
    with refused("orErrorInvalidValue", "not an aligned address of host"):
        d.call("orStreamWaitValue64", stream, address, 1)
    d.free(pointer)


# Launch modes. Who runs the work of an idle and of a busy stream?

WHO_RUNS = """
    import threading
    ran = []
    def note(args):
        ran.append(threading.get_ident() == main)
        return 0
    main, kernel = threading.get_ident(), Kernel(note)
    stream, value = make_stream(), ctypes.c_uint64(0)
    def runs_inline(which):
        return bool(library.orStreamRunsInline(which))
    for which in (None, stream):
        print(runs_inline(which), end=" ")
        launch(kernel, which)
        synchronize(which)
    print(ran)
    if os.environ["OPENREG_LAUNCH"] != "blocking":
        gate = Gate()
        gate.hold(None)
        print(runs_inline(None), end=" ")
        launch(kernel)
        gate.open()
        synchronize()
        print(ran[2:])
"""


@pytest.mark.proves(
    "environment.OPENREG_LAUNCH", "stream.modes.auto", "stream.modes.async"
)
@pytest.mark.parametrize(
    ("mode", "printed"),
    [
        ("auto", "True False [True, False]\nFalse [False]\n"),
        ("async", "False False [False, False]\nFalse [False]\n"),
        ("blocking", "True True [True, True]\n"),
    ],
)
def test_mode_says_which_thread_runs_work(mode, printed):
    assert d.check_run(WHO_RUNS, OPENREG_LAUNCH=mode) == printed


@pytest.mark.proves("stream.modes.blocking")
def test_blocking_waits_for_other_threads_and_for_values():
    code = """
    import threading
    log, gate = [], Gate()
    timer = threading.Timer(0.05, lambda: (log.append("opened"), gate.open()))
    timer.start()
    stream = make_stream()
    gate.hold(stream)
    log.append("waited")
    event = make_event()
    kernel = Kernel(lambda args: log.append("kernel") or 0)
    launch(kernel, stream)
    record(event, stream)
    print(log, is_done("orEventQuery", event), is_done("orStreamQuery", stream))
    print(tasks(str))
    """
    printed = d.check_run(WORKERS + code, OPENREG_LAUNCH="blocking")
    assert printed == "['opened', 'waited', 'kernel'] True True\n{}\n"


def test_blocking_waits_for_the_turn_of_another_thread():
    code = """
    import threading
    log, stream = [], make_stream()
    with turn_of_another_thread(stream, lambda: log.append("turn")) as go_on:
        threading.Timer(0.05, go_on.set).start()
        kernel = Kernel(lambda args: log.append("kernel") or 0)
        launch(kernel, stream)
    print(log, tasks(str))
    """
    printed = d.check_run(WORKERS + code, OPENREG_LAUNCH="blocking")
    assert printed == "['turn', 'kernel'] {}\n"


# Turns


@pytest.mark.proves("emulator.orStreamRunsInline")
def test_work_launched_in_a_turn_runs_at_once_on_its_thread(log, stream):
    with d.turn(stream):
        assert d.library.orStreamRunsInline(stream) == 1
        thread = d.Kernel(lambda args: log.append(threading.get_ident()) or 0)
        d.launch(thread, stream)
        assert log == [threading.get_ident()]
        with d.turn(stream):
            d.launch(log.kernel("nested"), stream)
        d.launch(log.kernel("after"), stream)
        assert log[1:] == ["nested", "after"]
        d.synchronize(stream)
        assert d.is_done("orStreamQuery", stream)
    assert d.is_done("orStreamQuery", stream)


@pytest.mark.proves("emulator.orStreamBeginTurn")
@pytest.mark.queued
def test_turn_comes_between_earlier_and_later_work(log, stream, gate):
    gate.hold(stream)
    d.launch(log.kernel("earlier"), stream)
    begun, ended = threading.Event(), threading.Event()

    def take():
        with d.turn(stream):
            begun.set()
            ended.wait()
            log.append("turn")

    thread = threading.Thread(target=take)
    thread.start()
    assert not begun.wait(0.02)
    gate.open()
    begun.wait()
    d.launch(log.kernel("later"), stream)
    assert not d.is_done("orStreamQuery", stream)
    assert log == ["earlier"]
    ended.set()
    thread.join()
    d.synchronize(stream)
    assert log == ["earlier", "turn", "later"]


def test_one_thread_at_a_time_has_its_turn(stream):
    arrived, inside, seen = [], [], []

    def take():
        arrived.append(1)
        with d.turn(stream):
            inside.append(1)
            while len(arrived) < 8:  # who comes meanwhile must stay outside
                pass
            seen.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 8


@pytest.mark.proves(
    "emulator.orStreamEndTurn",
    "errors.codes.orErrorNotPermitted",
    "messages.does-not-hold-the-streams-turn",
)
def test_turn_is_ended_by_who_holds_it(log, stream):
    answers: list[str] = []

    def end():
        try:
            d.call("orStreamEndTurn", stream)
        except d.DeviceError as error:
            answers.append(error)

    with d.turn(stream):
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert answers[0].name == "orErrorNotPermitted"
        assert "does not hold the stream's turn" in answers[0].detail
        d.launch(log.kernel("still mine"), stream)
        assert log == ["still mine"]
    with refused("orErrorNotPermitted", "does not hold"):
        d.call("orStreamEndTurn", stream)


def test_turn_has_a_name(stream):
    with refused("orErrorInvalidValue", "name is NULL"):
        d.call("orStreamBeginTurn", stream, None)
    assert d.is_done("orStreamQuery", stream)


@pytest.mark.proves("emulator.orSetKernelError")
def test_kernel_that_fails_in_a_turn_fails_the_call_and_nothing_else(
    log, stream
):
    def complain(args):
        d.library.orSetKernelError(b"index 7 is out of range")
        return 9

    failing = log.keep(d.Kernel(complain))
    with d.turn(stream):
        with refused(
            "orErrorLaunchFailure",
            "kernel gather on device 0 answered orErrorLaunchFailure: "
            "index 7 is out of range$",
        ):
            d.launch(failing, stream, name=b"gather")
        # What it said is not repeated for the next kernel that fails.
        with refused("orErrorLaunchFailure", "answered orErrorLaunchFailure$"):
            d.launch(log.kernel("mute", answer=9), stream)
        d.launch(log.kernel("next"), stream)
    d.synchronize(stream)
    assert log == ["mute", "next"]


def test_kernel_in_a_turn_may_launch_on_its_stream(log, stream):
    inner = log.kernel("inner")

    def outer(args):
        log.append("outer")
        d.launch(inner, stream)
        return 0

    with d.turn(stream):
        d.launch(log.keep(d.Kernel(outer)), stream)
    assert log == ["outer", "inner"]


# Handles


@pytest.mark.proves("emulator.orStreamCreateWithPriority")
def test_stream_says_whose_it_is():
    d.set_device(1)
    stream = d.make_stream(priority=-1)
    d.set_device(0)
    for handle, device, priority in [
        (stream, 1, -1),
        (d.default_stream(1), 1, 0),
        (None, 0, 0),
    ]:
        assert stream_property("Device", handle) == device
        assert stream_property("Priority", handle) == priority
    d.call("orStreamDestroy", stream)


def stream_property(name, handle):
    value = c_int()
    d.call(f"orStreamGet{name}", handle, ctypes.byref(value))
    return value.value


@pytest.mark.proves("emulator.orDeviceGetStreamPriorityRange")
def test_priority_out_of_range_is_clamped():
    least, greatest = c_int(), c_int()
    d.call(
        "orDeviceGetStreamPriorityRange",
        ctypes.byref(least),
        ctypes.byref(greatest),
    )
    assert (least.value, greatest.value) == (0, -1)
    for asked, got in [(5, 0), (0, 0), (-1, -1), (-9, -1)]:
        stream = d.make_stream(asked)
        assert stream_property("Priority", stream) == got
        d.call("orStreamDestroy", stream)


@pytest.mark.proves("emulator.orStreamDestroy", "messages.or-was-destroyed")
def test_destroyed_handle_is_refused_and_not_used_again(log):
    stream = d.make_stream()
    d.call("orStreamDestroy", stream)
    other = d.make_stream()
    assert other != stream
    calls: dict[str, list[Any]] = {
        "orStreamDestroy": [],
        "orStreamQuery": [],
        "orStreamSynchronize": [],
        "orStreamBeginTurn": [b"turn"],
        "orStreamEndTurn": [],
        "orStreamGetDevice": [ctypes.byref(c_int())],
        "orStreamGetPriority": [ctypes.byref(c_int())],
    }
    for name, arguments in calls.items():
        with refused("orErrorInvalidResourceHandle", DESTROYED):
            d.call(name, stream, *arguments)
    with refused("orErrorInvalidResourceHandle", DESTROYED):
        d.launch(log.kernel("never"), stream)
    assert d.library.orStreamRunsInline(stream) == 0
    d.call("orStreamDestroy", other)
    assert log == []


@pytest.mark.proves("messages.default-stream-cannot")
def test_default_stream_cannot_be_destroyed():
    for handle in (None, d.default_stream(1)):
        with refused("orErrorInvalidResourceHandle", "default stream cannot"):
            d.call("orStreamDestroy", handle)


@pytest.mark.proves("messages.end-it-first")
def test_stream_is_not_destroyed_in_ones_own_turn(stream):
    with d.turn(stream), refused("orErrorNotPermitted", "end it first"):
        d.call("orStreamDestroy", stream)


@pytest.mark.queued
def test_pending_work_of_a_destroyed_stream_is_done(log, gate):
    stream = d.make_stream()
    gate.hold(stream)
    d.launch(log.kernel("pending"), stream)
    d.call("orStreamDestroy", stream)
    assert log == []
    open_later(gate)
    d.call("orDeviceSynchronize")
    assert log == ["pending"]


def test_stream_can_be_destroyed_during_anothers_turn():
    stream = d.make_stream()
    begun, destroyed = threading.Event(), threading.Event()
    answers: list[int] = []

    def take():
        d.call("orStreamBeginTurn", stream, b"turn")
        begun.set()
        destroyed.wait()
        answers.append(d.library.orStreamEndTurn(stream))

    thread = threading.Thread(target=take)
    thread.start()
    begun.wait()
    d.call("orStreamDestroy", stream)
    destroyed.set()
    thread.join()
    assert answers == [0]
    d.call("orDeviceSynchronize")


@pytest.mark.proves(
    "emulator.orStreamGetDevice", "emulator.orStreamGetPriority"
)
def test_where_the_answer_should_go_is_needed(stream):
    for name, arguments in {
        "orStreamCreateWithPriority": [None, 0],
        "orStreamGetDevice": [stream, None],
        "orStreamGetPriority": [stream, None],
        "orDeviceGetStreamPriorityRange": [None, None],
    }.items():
        with refused("orErrorInvalidValue", f"{name}: .* NULL"):
            d.call(name, *arguments)


# Workers

WORKERS = """
    def tasks(what):
        found = {}
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/comm") as comm:
                    name = comm.read().strip()
            except OSError:  # the thread has just ended
                continue
            if name.startswith("openreg-"):
                found[name] = what(int(task))
        return dict(sorted(found.items()))
    def work(stream):
        launch(kernel, stream)
        synchronize(stream)
    kernel = Kernel(lambda args: 0)
"""


def test_worker_is_made_for_queued_work_and_has_the_streams_priority():
    code = f"""{WORKERS}
    low, high = make_stream(0), make_stream(-1)
    print(tasks(str))
    work(low)
    work(high)
    set_device(1)
    work(make_stream(-1))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    print(tasks(lambda task: os.getpriority(os.PRIO_PROCESS, task) - own))
    """
    assert d.check_run(code, OPENREG_LAUNCH="auto") == (
        "{}\n{'openreg-0-1': 1, 'openreg-0-2': 0, 'openreg-1-3': 0}\n"
    )


def test_worker_uses_the_cpus_that_the_process_started_with():
    code = f"""{WORKERS}
    started = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {{min(started)}})  # as OpenMP binds its threads
    work(make_stream())
    masks = tasks(os.sched_getaffinity)
    print(masks["openreg-0-1"] == started)
    """
    assert d.check_run(code, OPENREG_LAUNCH="auto") == "True\n"


def test_worker_uses_all_cpus_where_openmp_bound_the_process_before():
    code = """
    import subprocess, sys
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    inner = '''
    from _device import *
    %s
    work(make_stream())
    print(sorted(tasks(os.sched_getaffinity)["openreg-0-1"]))
    '''
    print(sorted(everywhere), flush=True)
    subprocess.run([sys.executable, "-c", inner], check=True)
    """
    lines = d.check_run(
        code % WORKERS, OPENREG_LAUNCH="auto", OMP_PROC_BIND="true"
    ).splitlines()
    assert lines[0] == lines[1]


def test_worker_takes_no_signals_but_those_of_its_own_faults():
    code = f"""{WORKERS}
    import signal
    work(make_stream())
    def blocked(task):
        with open(f"/proc/self/task/{{task}}/status") as status:
            line = next(line for line in status if line.startswith("SigBlk"))
        mask = int(line.split()[1], 16)
        return [mask >> (number - 1) & 1 for number in (
            signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGBUS)]
    print(tasks(blocked)["openreg-0-1"])
    print(blocked(os.getpid()))
    """
    printed = d.check_run(code, OPENREG_LAUNCH="auto")
    assert printed == "[1, 1, 0, 0]\n[0, 0, 0, 0]\n"


def test_worker_ends_with_its_stream():
    code = f"""{WORKERS}
    import time
    stream = make_stream()
    work(stream)
    print(list(tasks(str)))
    call("orStreamDestroy", stream)
    while tasks(str):
        time.sleep(0.001)
    print("ended")
    """
    printed = d.check_run(code, OPENREG_LAUNCH="auto")
    assert printed == "['openreg-0-1']\nended\n"


# Copies

BYTES = 3 * d.PAGE


def pattern(seed):
    return bytes((seed + place) % 251 for place in range(BYTES))


@pytest.fixture
def blocks():
    """Two blocks of device 0, one of device 1 and two of pinned memory."""
    device = [d.malloc(BYTES), d.malloc(BYTES)]
    d.set_device(1)
    device.append(d.malloc(BYTES))
    d.set_device(0)
    pinned = [d.malloc_host(BYTES), d.malloc_host(BYTES)]
    yield *device, *pinned
    for pointer in device:
        d.free(pointer)
    for pointer in pinned:
        d.free_host(pointer)


def copy_async(dst, src, kind, stream, count=BYTES):
    d.call("orMemcpyAsync", dst, src, count, kind, stream)


@pytest.mark.proves("emulator.orMemcpyAsync", "emulator.orMemsetAsync")
@pytest.mark.parametrize("inferred", [False, True])
def test_every_kind_is_copied_in_order(blocks, stream, inferred):
    first, second, other, source, target = blocks
    ctypes.memmove(source, pattern(1), BYTES)
    for dst, src, kind in [
        (first, source, d.HOST_TO_DEVICE),
        (second, first, d.DEVICE_TO_DEVICE),
        (other, second, d.DEVICE_TO_DEVICE),
        (target, other, d.DEVICE_TO_HOST),
        (source, target, d.HOST_TO_HOST),
    ]:
        copy_async(dst, src, d.DEFAULT if inferred else kind, stream)
        copy_async(dst, src, d.DEFAULT, stream, count=0)
    d.call("orMemsetAsync", first, 7, BYTES, stream)
    copy_async(other, first, d.DEFAULT, stream, count=100)
    d.synchronize(stream)
    assert ctypes.string_at(target, BYTES) == pattern(1)
    assert d.read(first, BYTES) == b"\7" * BYTES
    assert d.read(other, BYTES) == b"\7" * 100 + pattern(1)[100:]


@pytest.mark.queued
def test_pinned_source_is_read_when_its_turn_comes(blocks, stream, gate):
    first, _, _, source, _ = blocks
    ctypes.memmove(source, pattern(1), BYTES)
    gate.hold(stream)
    copy_async(first, source, d.HOST_TO_DEVICE, stream)
    ctypes.memmove(source, pattern(2), BYTES)
    gate.open()
    d.synchronize(stream)
    assert d.read(first, BYTES) == pattern(2)


@pytest.mark.queued
def test_pageable_source_has_been_read_when_the_call_returns(
    blocks, stream, gate
):
    first = blocks[0]
    buffer = ctypes.create_string_buffer(pattern(1), BYTES)
    gate.hold(stream)
    copy_async(first, ctypes.addressof(buffer), d.DEFAULT, stream)
    ctypes.memset(buffer, 0, BYTES)
    gate.open()
    d.synchronize(stream)
    assert d.read(first, BYTES) == pattern(1)


@pytest.mark.queued
def test_copy_into_pageable_memory_waits_for_its_turn(blocks, stream, gate):
    first, _, _, source, _ = blocks
    ctypes.memmove(source, pattern(3), BYTES)
    gate.hold(stream)
    copy_async(first, source, d.HOST_TO_DEVICE, stream)
    buffer = ctypes.create_string_buffer(BYTES)
    open_later(gate)
    copy_async(ctypes.addressof(buffer), first, d.DEVICE_TO_HOST, stream)
    assert buffer.raw == pattern(3)


@pytest.mark.queued
def test_synchronous_calls_wait_for_the_default_stream(blocks, log, gate):
    first, second, _, source, _ = blocks
    ctypes.memmove(source, pattern(4), BYTES)
    gate.hold(None)
    copy_async(first, source, d.HOST_TO_DEVICE, None)
    open_later(gate)
    assert d.read(first, BYTES) == pattern(4)
    gate.value.value = 0
    gate.hold(None)
    copy_async(second, first, d.DEVICE_TO_DEVICE, None)
    open_later(gate)
    d.memset(first, 9, BYTES)
    assert d.read(second, BYTES) == pattern(4)
    assert d.read(first, BYTES) == b"\11" * BYTES


def test_what_a_copy_can_refuse_it_refuses_at_once(blocks, stream):
    first, second, _, source, _ = blocks
    copy = "orMemcpyAsync"
    for name, arguments, error, match in [
        (copy, (first, source, 8, 5), "InvalidMemcpyDirection", "kind is 5"),
        (copy, (first, source, 8, 2), "InvalidMemcpyDirection", "is device"),
        (copy, (None, source, 8, 4), "InvalidValue", "dst or src is NULL"),
        (copy, (first, second, BYTES + 1, 4), "InvalidValue", "pass the end"),
        (copy, (first, source, BYTES + 1, 4), "InvalidValue", "pass the end"),
        ("orMemsetAsync", (source, 0, 8), "InvalidDevicePointer", "set its"),
    ]:
        with refused(f"orError{error}", match):
            d.call(name, *arguments, stream)
    with refused("orErrorInvalidResourceHandle", DESTROYED):
        d.call(copy, first, source, 8, d.DEFAULT, 24)
    with refused("orErrorInvalidResourceHandle", DESTROYED):
        d.call(copy, first, source, 0, d.DEFAULT, 24)
    assert d.is_done("orStreamQuery", stream)


@pytest.mark.queued
@pytest.mark.parametrize("kind", ["device", "pinned"])
def test_memory_is_freed_when_the_work_of_its_device_is_done(
    stream, gate, kind
):
    device, pinned = d.malloc(BYTES), d.malloc_host(BYTES)
    ctypes.memmove(pinned, pattern(5), BYTES)
    gate.hold(stream)
    copy_async(device, pinned, d.HOST_TO_DEVICE, stream)
    open_later(gate)
    if kind == "device":
        d.free(device)
        assert d.is_done("orStreamQuery", stream)
        d.free_host(pinned)
    else:
        d.free_host(pinned)
        assert d.read(device, BYTES) == pattern(5)
        d.free(device)


# Host functions


@pytest.mark.proves("emulator.orLaunchHostFunc")
def test_host_function_runs_in_order(log, stream):
    d.launch(log.kernel(1), stream)
    d.launch_host(log.host(2), stream)
    d.launch(log.kernel(3), stream)
    d.synchronize(stream)
    assert log == [1, 2, 3]
    with refused("orErrorInvalidValue", "fn is NULL"):
        d.launch_host(None, stream)


def try_everything(answers, stream, event, pointer, pinned):
    """Each call that launches or waits, from inside the device's work."""
    kernel = d.Kernel(lambda args: 0)
    calls: list[tuple[Any, ...]] = [
        ("orLaunchKernel", stream, b"k", cast(kernel), None, None),
        ("orLaunchHostFunc", stream, cast(kernel), None, None),
        ("orMemcpyAsync", pointer, pointer, 8, d.DEFAULT, stream),
        ("orMemcpy", pointer, pointer, 8, d.DEFAULT),
        ("orMemset", pointer, 0, 8),
        ("orStreamSynchronize", stream),
        ("orStreamBeginTurn", stream, b"turn"),
        ("orStreamWaitEvent", stream, event),
        ("orStreamWaitValue64", stream, pinned, 1),
        ("orEventRecord", event, stream),
        ("orEventSynchronize", event),
        ("orDeviceSynchronize",),
        ("orDeviceReset",),
        ("orFree", pointer),
        ("orFreeHost", pinned),
    ]
    for name, *arguments in calls:
        try:
            d.call(name, *arguments)
            answers.append(f"{name} was let through")
        except d.DeviceError as error:
            answers.append(str(error))
    assert d.library.orStreamRunsInline(stream) == 0


def cast(function):
    return ctypes.cast(function, c_void_p)


def check_everything_refused(launch, inside, stream):
    event, pointer, pinned = d.make_event(), d.malloc(8), d.malloc_host(8)
    answers: list[str] = []
    launch(lambda: try_everything(answers, stream, event, pointer, pinned))
    d.synchronize(stream)
    assert len(answers) == 15
    for answer in answers:
        assert f"was called from inside {inside}, which" in answer
        assert answer.startswith("orErrorNotPermitted: or")
    d.free(pointer)
    d.free_host(pinned)
    d.call("orEventDestroy", event)


@pytest.mark.proves("messages.was-called-from-inside")
@pytest.mark.parametrize("in_turn", [False, True])
def test_host_function_may_not_launch_or_wait(log, stream, in_turn):
    def launch(ask):
        host = log.keep(d.HostFunction(lambda args: ask()))
        if in_turn:
            with d.turn(stream):
                d.launch_host(host, stream)
        else:
            d.launch_host(host, stream)

    check_everything_refused(launch, "a host function", stream)


@pytest.mark.queued
def test_kernel_on_a_worker_may_not_launch_or_wait(log, stream):
    def launch(ask):
        kernel = log.keep(d.Kernel(lambda args: ask() or 0))
        d.launch(kernel, stream, name=b"nosy")

    check_everything_refused(launch, "nosy", stream)


# Failure


@pytest.fixture
def device_one():
    """Device 1 with two streams; it is whole again in the end."""
    d.set_device(1)
    first, second = d.make_stream(), d.make_stream()
    yield first, second
    d.set_device(1)
    d.call("orDeviceReset")
    for stream in (first, second):
        d.call("orStreamDestroy", stream)
    d.set_device(0)


def failing(log, name=b"gather", message=b"index 7 is out of range"):
    def kernel(args):
        d.library.orSetKernelError(message)
        return 9

    return log.keep(d.Kernel(kernel))


WHY = (
    "device 1 has failed: kernel gather on device 1 answered "
    "orErrorLaunchFailure: index 7 is out of range; orDeviceReset ends this$"
)


@pytest.mark.proves(
    "emulator.orDeviceReset", "messages.ordevicereset-ends-this"
)
@pytest.mark.queued
def test_queued_failure_is_the_devices_until_reset(log, device_one, gate):
    first, second = device_one
    pointer = d.malloc(8)
    d.write(pointer, b"12345678")
    event, other_gate = d.make_event(), d.Gate()
    released: list[int] = []
    release = log.keep(d.Release(released.append))
    other_gate.hold(second)
    d.launch(log.kernel("never"), second, 1, release)
    gate.hold(first)
    d.launch(failing(log), first, 2, release, name=b"gather")
    d.launch(failing(log), first, 3, release, name=b"later")
    d.record(event, first)
    d.call("orStreamWaitEvent", d.default_stream(1), event)
    gate.open()
    for name, *arguments in [
        ("orStreamSynchronize", first),
        ("orStreamSynchronize", second),
        ("orStreamSynchronize", None),
        ("orStreamQuery", first),
        ("orDeviceSynchronize",),
        ("orEventSynchronize", event),
        ("orEventQuery", event),
        ("orEventRecord", event, first),
        ("orStreamBeginTurn", second, b"turn"),
        ("orMemcpy", pointer, pointer, 8, d.DEFAULT),
        ("orMemsetAsync", pointer, 0, 8, second),
        ("orLaunchKernel", first, b"k", cast(log.kernel("no")), 4, None),
    ]:
        with refused("orErrorDeviceFailed", WHY):
            d.call(name, *arguments)
    assert d.library.orStreamRunsInline(None) == 0

    # The other device goes on.
    d.set_device(0)
    d.launch(log.kernel("device 0"))
    d.call("orDeviceSynchronize")
    assert log == ["device 0"]

    d.set_device(1)
    d.call("orDeviceReset")
    assert sorted(released) == [1, 2, 3]
    assert d.read(pointer, 8) == b"12345678"
    d.launch(log.kernel("again"), first)
    d.record(event, first)
    d.call("orEventSynchronize", event)
    d.call("orDeviceSynchronize")
    assert log == ["device 0", "again"]
    d.call("orEventDestroy", event)
    d.free(pointer)


@pytest.mark.queued
def test_failed_device_lets_go_of_its_memory_and_handles(log, device_one):
    pointer, event, stream = d.malloc(8), d.make_event(), d.make_stream()
    d.launch(failing(log), device_one[0], name=b"gather")
    with refused("orErrorDeviceFailed", WHY):
        d.synchronize(device_one[0])
    d.free(pointer)
    d.call("orEventDestroy", event)
    d.call("orStreamDestroy", stream)
    d.free(d.malloc(8))


@pytest.mark.queued
def test_who_waits_for_a_turn_is_told_of_the_failure(log, device_one, gate):
    first = device_one[0]
    gate.hold(first)
    d.launch(failing(log), first, name=b"gather")
    open_later(gate)
    with refused("orErrorDeviceFailed", WHY):
        d.call("orStreamBeginTurn", first, b"turn")
    d.call("orDeviceReset")
    with d.turn(first):
        d.launch(log.kernel("turn"), first)
    assert log == ["turn"]


@pytest.mark.proves("event-wait-ends")
@pytest.mark.queued
def test_failure_of_another_device_ends_the_wait_for_its_event(
    log, stream, device_one
):
    first = device_one[0]
    event = d.make_event()
    gate = d.Gate()
    gate.hold(first)
    d.launch(failing(log), first, name=b"gather")
    d.record(event, first)
    d.call("orStreamWaitEvent", stream, event)
    d.launch(log.kernel("device 0"), stream)
    gate.open()
    d.synchronize(stream)
    assert log == ["device 0"]
    d.call("orEventDestroy", event)


@pytest.mark.queued
def test_reset_drops_what_is_queued(log, device_one):
    first, second = device_one
    event, gate = d.make_event(), d.Gate()
    gate.hold(first)  # and never opened
    d.launch(log.kernel("dropped"), first)
    d.record(event, first)
    d.call("orStreamWaitEvent", second, event)
    d.call("orDeviceReset")
    d.launch(log.kernel("after"), second)
    d.call("orDeviceSynchronize")
    assert log == ["after"]
    d.call("orEventDestroy", event)


def test_device_is_not_reset_in_a_turn(device_one):
    with (
        d.turn(device_one[0]),
        refused("orErrorNotPermitted", "turn on a stream of device 1"),
    ):
        d.call("orDeviceReset")


# Tracing


KERNEL, COPY, SET, HOST, TURN, WAIT = range(6)
RETURN = 3


class Trace(list[dict[str, Any]]):
    """The records of what happens inside a `with`; the host's are `calls`."""

    def __init__(self):
        self.calls = []

    def __enter__(self):
        self.function = d.TraceFunction(self.note)
        function = cast(self.function)
        self.handle = d.result(c_void_p, "orTraceSubscribe", function, 5)
        return self

    def __exit__(self, *_):
        d.call("orTraceUnsubscribe", self.handle)

    def note(self, record, user):
        assert user == 5
        found = record.contents
        record = {name: getattr(found, name) for name, _ in found._fields_}
        is_call = found.kind == WAIT or found.phase == RETURN
        (self.calls if is_call else self).append(record)
        if not is_call:
            self.heard(found.name)

    def heard(self, name):
        """What a test does then."""


@pytest.mark.proves("emulator.orTraceSubscribe")
def test_work_is_traced_from_launch_to_end(log, stream, blocks):
    first, _, _, source, _ = blocks
    d.set_device(1)
    other = d.make_stream()
    d.set_device(0)
    with Trace() as trace:
        d.launch(log.kernel("k"), stream, name=b"relu")
        copy_async(first, source, d.DEFAULT, stream)
        d.call("orMemsetAsync", first, 0, 16, None)
        d.launch_host(log.host("h"), other)
        for each in (stream, None, other):
            d.synchronize(each)
    d.launch(log.kernel("untraced"), stream)
    d.synchronize(stream)
    works: dict[int, list[dict[str, Any]]] = {}
    for record in trace:
        works.setdefault(record["work"], []).append(record)
    told: list[Any] = []
    for records in works.values():
        assert [record["phase"] for record in records] == [0, 1, 2]
        times = [record["time_ns"] for record in records]
        assert times == sorted(times)
        same = {
            tuple(record[name] for name in ("kind", "name", "device", "bytes"))
            for record in records
        }
        assert len(same) == 1
        told.extend(same)
    assert told == [
        (0, b"relu", 0, 0),
        (1, b"Memcpy HtoD (Pinned -> Device)", 0, BYTES),
        (2, b"Memset (Device)", 0, 16),
        (3, b"host function", 1, 0),
    ]
    numbers = [records[0]["stream"] for records in works.values()]
    assert numbers[0] == numbers[1] != numbers[3]
    assert numbers[2] == 0
    assert numbers[3] > 0
    # Work of one stream does not overlap.
    ends = [records[2]["time_ns"] for records in works.values()]
    starts = [records[1]["time_ns"] for records in works.values()]
    assert starts[1] >= ends[0]
    d.call("orStreamDestroy", other)


@pytest.mark.queued
def test_a_launch_returns_before_its_work_is_done(log, stream, gate):
    with Trace() as trace:
        gate.hold(stream)
        d.launch(log.kernel("k"), stream, name=b"k")
        gate.open()
        d.synchronize(stream)
    launch, *_, end = trace
    returned, wait, awaited = trace.calls
    assert launch["time_ns"] <= returned["time_ns"] <= end["time_ns"]
    assert (returned["phase"], returned["work"]) == (RETURN, launch["work"])
    assert wait["work"] == awaited["work"] != launch["work"]
    assert end["time_ns"] <= awaited["time_ns"]


def test_every_wait_of_the_host_is_traced(stream):
    event = d.make_event()
    d.call("orEventRecord", event, stream)
    with Trace() as trace:
        d.synchronize(stream)
        d.call("orEventSynchronize", event)
        d.call("orDeviceSynchronize")
    assert told(trace) == []
    assert told(trace.calls) == [
        (phase, WAIT, name)
        for name in (
            b"orStreamSynchronize", b"orEventSynchronize",
            b"orDeviceSynchronize",
        )
        for phase in (0, RETURN)
    ]  # fmt: skip
    assert [x["stream"] > 0 for x in trace.calls] == [True] * 2 + [False] * 4


@pytest.mark.queued
def test_dropped_work_is_traced_at_its_launch_alone(log, device_one):
    first = device_one[0]
    gate = d.Gate()
    gate.hold(first)
    with Trace() as trace:
        d.launch(log.kernel("dropped"), first, name=b"dropped")
        d.call("orDeviceReset")
    assert [(record["phase"], record["name"]) for record in trace] == [
        (0, b"dropped")
    ]


def told(trace):
    return [(x["phase"], x["kind"], x["name"]) for x in trace]


def test_work_that_runs_at_its_launch_is_traced_too(log, blocks):
    with Trace() as trace:
        d.launch(log.kernel("k"), None, name=b"relu")
        d.call("orMemset", blocks[0], 0, 16)
        d.synchronize()
    assert told(trace) == [
        (phase, kind, name)
        for kind, name in [(KERNEL, b"relu"), (SET, b"Memset (Device)")]
        for phase in range(3)
    ]
    assert {x["thread"] for x in trace} == {threading.get_native_id()}


def test_turns_are_traced_one_inside_the_other(stream):
    with Trace() as trace:
        with d.turn(stream, b"outer"):
            with d.turn(stream, b"inner"):
                assert [x["phase"] for x in trace] == [0, 1, 0, 1]
            d.launch(d.Kernel(lambda _: 0), stream, name=b"within")
        with d.turn(stream, b"next"):
            pass
    phases = [(x["phase"], x["name"]) for x in trace]
    assert phases == [
        (0, b"outer"), (1, b"outer"),
        (0, b"inner"), (1, b"inner"), (2, b"inner"),
        (0, b"within"), (1, b"within"), (2, b"within"),
        (2, b"outer"),
        (0, b"next"), (1, b"next"), (2, b"next"),
    ]  # fmt: skip
    kinds = {x["name"]: x["kind"] for x in trace}
    assert kinds.pop(b"within") == KERNEL
    assert set(kinds.values()) == {TURN}


def test_turn_that_was_begun_before_a_trace_is_not_in_it(stream):
    with d.turn(stream, b"before"):
        trace = Trace().__enter__()
        with d.turn(stream, b"seen"):
            pass
    trace.__exit__()
    assert told(trace) == [(phase, TURN, b"seen") for phase in range(3)]


@pytest.mark.queued
def test_turn_starts_when_the_work_before_it_has_ended(log, stream, gate):
    def take():
        with d.turn(stream, b"turn"):
            pass

    with Trace() as trace:
        gate.hold(stream)
        d.launch(log.kernel("k"), stream, name=b"k")
        trace.heard = lambda name: gate.open()
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    assert [(x["phase"], x["name"]) for x in trace] == [
        (0, b"k"), (0, b"turn"), (1, b"k"), (2, b"k"), (1, b"turn"),
        (2, b"turn"),
    ]  # fmt: skip


def listeners():
    return ctypes.c_int.in_dll(d.library, "orTraceSubscribers").value


@pytest.mark.proves("emulator.orTraceUnsubscribe")
def test_each_subscriber_hears_what_is_launched_until_it_leaves(log, stream):
    before = listeners()
    first, second = Trace(), Trace()
    with first:
        d.launch(log.kernel("a"), stream, name=b"a")
        with second:
            assert listeners() == before + 2
            d.launch(log.kernel("b"), stream, name=b"b")
            d.synchronize(stream)
        d.launch(log.kernel("c"), stream, name=b"c")
        d.synchronize(stream)
    assert listeners() == before
    names = [x["name"] for x in first if x["phase"] == 0]
    assert names == [b"a", b"b", b"c"]
    of_b = [x for x in first if x["name"] == b"b"]
    assert [x for x in second if x["name"] == b"b"] == of_b


@pytest.mark.proves("messages.is-not-a-subscriber")
def test_subscribers_are_checked(stream):
    function = cast(d.TraceFunction(lambda record, user: None))
    for where, what in (None, function), (byref(c_void_p()), None):
        with refused("orErrorInvalidValue", "subscriber or fn is NULL"):
            d.call("orTraceSubscribe", where, what, None)
    trace = Trace()
    with trace:
        pass
    for handle in (trace.handle, None):
        with refused("orErrorInvalidResourceHandle", "is not a subscriber"):
            d.call("orTraceUnsubscribe", handle)


def test_a_subscriber_can_neither_launch_nor_wait_nor_leave(log, stream):
    """It would wait for itself, or hear of its own work for ever."""
    handle = c_void_p()
    answers: list[Any] = []

    @d.TraceFunction
    def listen(record, user):
        for name, *arguments in [
            ("orLaunchKernel", stream, b"k", log.kernel("k"), None, None),
            ("orStreamSynchronize", stream), ("orStreamBeginTurn", stream, b""),
            ("orTraceSubscribe", byref(c_void_p()), cast(listen), None),
            ("orTraceUnsubscribe", handle),
        ]:  # fmt: skip
            try:
                d.call(name, *arguments)
                answers.append(name)
            except d.DeviceError as error:
                answers.append((error.name, "listens to traces" in str(error)))

    d.call("orTraceSubscribe", byref(handle), cast(listen), None)
    with d.turn(stream):
        pass
    d.call("orTraceUnsubscribe", handle)
    assert answers == [("orErrorNotPermitted", True)] * 5 * 3
    d.launch(log.kernel("after"), stream)
    d.synchronize(stream)
    assert log == ["after"]


def test_a_subscriber_has_not_left_while_it_is_being_told(log, stream):
    """So what it writes to may go as soon as it has left."""
    told, leaving, left = (threading.Event() for _ in range(3))
    had_left: list[bool] = []

    @d.TraceFunction
    def listen(record, user):
        told.set()
        leaving.wait()
        if not had_left:
            had_left.append(left.wait(0.1))  # time in which it must not leave

    def leave():
        told.wait()
        leaving.set()
        d.call("orTraceUnsubscribe", handle)
        left.set()

    handle = d.result(c_void_p, "orTraceSubscribe", cast(listen), None)
    thread = threading.Thread(target=leave)
    thread.start()
    d.launch(log.kernel("k"), stream)
    d.synchronize(stream)
    thread.join()
    assert had_left == [False]


@pytest.mark.parametrize("mode", MODES)
def test_all_work_is_traced_in_every_mode(mode):
    code = """
    told, returned = [], []

    @TraceFunction
    def listen(record, user):
        found = record.contents
        record = found.phase, found.kind, found.name.decode()
        (returned if found.phase == 3 else told).append((found.work, *record))

    handle, memory, side = c_void_p(), malloc(16), make_stream()
    call("orTraceSubscribe", byref(handle), ctypes.cast(listen, c_void_p), None)
    kernel, host = Kernel(lambda _: 0), HostFunction(lambda _: None)
    for stream in None, side:
        launch(kernel, stream, name=b"k")
        call("orMemcpyAsync", memory, memory, 16, DEFAULT, stream)
        call("orMemsetAsync", memory, 0, 16, stream)
        launch_host(host, stream)
        with turn(stream, b"t"):
            launch(kernel, stream, name=b"inside")
        synchronize(stream)
    call("orTraceUnsubscribe", handle)
    works: dict[int, list[dict[str, Any]]] = {}
    for work, phase, *what in told:
        works.setdefault(work, []).append(phase)
        if phase == 0:
            print(*what)
    print(sorted(works) == list(works))
    print(sorted(set(map(str, works.values()))))
    print(sorted(work for work, *_ in returned) == [
        work for work, phase, kind, _ in told if phase == 0 and kind != 4
    ])
    """
    once = "0 k\n1 Memcpy DtoD (Device -> Device)\n2 Memset (Device)\n"
    once += "3 host function\n4 t\n0 inside\n5 orStreamSynchronize\n"
    printed = d.check_run(code, OPENREG_LAUNCH=mode)
    assert printed == 2 * once + "True\n['[0, 1, 2]', '[0]']\nTrue\n"
