"""The device's C API: configuration, devices, errors and the launch."""

import ctypes
import os
import re
import shlex
import subprocess
import threading
from ctypes import byref, c_int, c_void_p
from pathlib import Path
from typing import Any

import pytest

import _device as d
from _device import refused

pytestmark = pytest.mark.one_mode

HEADER = Path(__file__).parents[1] / "device" / "openreg.h"

ERROR_NAMES = [
    "orSuccess",
    "orErrorInvalidValue",
    "orErrorMemoryAllocation",
    "orErrorInvalidConfiguration",
    "orErrorForkedProcess",
    "orErrorInvalidDevice",
    "orErrorInvalidDevicePointer",
    "orErrorInvalidMemcpyDirection",
    "orErrorInvalidResourceHandle",
    "orErrorLaunchFailure",
    "orErrorDeviceFailed",
    "orErrorNotReady",
    "orErrorNotPermitted",
    "orErrorInitializationError",
    "orErrorStreamCaptureUnsupported",
    "orErrorStreamCaptureInvalidated",
]

# Configuration


def test_two_devices_of_four_gigabytes_by_default():
    printed = d.check_run(
        "print(device_count(), memory_info(), address_space().device_bytes)",
        OPENREG_DEVICE_COUNT=None,
        OPENREG_DEVICE_MEMORY=None,
    )
    assert printed == f"2 ({4 << 30}, {4 << 30}) {8 << 30}\n"


@pytest.mark.proves("environment.OPENREG_DEVICE_MEMORY")
@pytest.mark.parametrize(
    ("text", "capacity"),
    [
        ("4096", d.PAGE),
        ("128K", 128 << 10),
        ("3M", 3 << 20),
        ("1024G", 1 << 40),
        (f"{16 * d.PAGE + 1}", 17 * d.PAGE),
    ],
)
def test_capacity_is_read_in_bytes_and_rounded_up_to_pages(text, capacity):
    printed = d.check_run("print(memory_info())", OPENREG_DEVICE_MEMORY=text)
    assert printed == f"({capacity}, {capacity})\n"


@pytest.mark.proves("environment.OPENREG_DEVICE_COUNT")
@pytest.mark.parametrize("count", [1, 16])
def test_count_is_read(count):
    printed = d.check_run(
        "set_device(device_count() - 1); print(get_device())",
        OPENREG_DEVICE_COUNT=str(count),
        OPENREG_LAUNCH="blocking",
    )
    assert printed == f"{count - 1}\n"


NUMBER = "a whole number from 0 to 16"
BYTES = f"bytes such as 512M, from {d.PAGE} (one page) to 1024G"
MALFORMED = {
    ("OPENREG_DEVICE_COUNT", NUMBER): "abc,,-1,17,2.0,+1, 1,2x,99999999999999",
    ("OPENREG_DEVICE_MEMORY", BYTES): "abc,,0,1,4095,4k,4GB,-4G,G,1.5G,1025G,"
    "18446744073709551616,99999999999999G",
    ("OPENREG_LAUNCH", "auto, async or blocking"): "fast,,AUTO,1",
    ("OPENREG_SEGV_HANDLER", "0 or 1"): "yes,,2,01",
}


@pytest.mark.proves(
    "errors.codes.orErrorInvalidConfiguration",
    "messages.whole-number-from-0-to-16",
    "messages.one-page-to-1024g",
    "messages.async-or-blocking",
    "messages.0-or-1",
)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (name, value, expected)
        for (name, expected), values in MALFORMED.items()
        for value in values.split(",")
    ],
)
def test_malformed_values_are_refused(name, value, expected):
    code = """
    try:
        print(device_count())
    except DeviceError as error:
        print(error)
    """
    assert d.check_run(code, **{name: value}) == (
        f"orErrorInvalidConfiguration: {name} is '{value}'; "
        f"expected {expected}\n"
    )


def test_every_call_refuses_a_malformed_value():
    lines = d.check_run(
        d.ASK_EVERYTHING, OPENREG_DEVICE_COUNT="abc"
    ).splitlines()
    assert len(lines) == 16
    for line in lines:
        name, answer = line.split(" ", 1)
        assert answer == (
            "orErrorInvalidConfiguration: OPENREG_DEVICE_COUNT is 'abc'; "
            f"expected {NUMBER}"
        ), name


@pytest.mark.proves("messages.there-are-no-devices-openreg_device_count-0")
def test_without_devices_addresses_are_zero_and_use_is_refused():
    code = """
    space = address_space()
    print(device_count(), *(getattr(space, name) for name, _ in space._fields_))
    print(tuple(attributes(0x1000)))
    """
    printed = d.check_run(code, OPENREG_DEVICE_COUNT="0")
    assert printed == "0 0 0 0 0\n(0, -1, None, 0)\n"
    answers = dict(
        line.split(" ", 1)
        for line in d.check_run(
            d.ASK_EVERYTHING, OPENREG_DEVICE_COUNT="0"
        ).splitlines()
    )
    sentence = "there are no devices: OPENREG_DEVICE_COUNT=0"
    for name in [
        "orGetDevice",
        "orSetDevice",
        "orGetDeviceProperties",
        "orDeviceSynchronize",
        "orMalloc",
        "orMallocHost",
        "orMemGetInfo",
        "orLaunchKernel",
        "orDeviceGetDefaultStream",
    ]:
        assert answers[name] == f"orErrorInvalidDevice: {sentence}", name


@pytest.mark.proves("messages.bytes-of-addresses")
def test_no_addresses_to_be_had_is_an_error_that_may_pass():
    code = """
    import resource
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, unlimited[1]))
    print(device_count(), attributes(id(unlimited))[1], get_device())
    for use in address_space, lambda: malloc(8):
        try:
            use()
        except DeviceError as error:
            print(error)
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    print(read(malloc(8), 8) == bytes(8))
    """
    refusal = (
        f"orErrorInitializationError: cannot reserve {4 << 40} bytes of "
        f"addresses, twice the memory of 2 devices of {1 << 40} bytes: Cannot "
        "allocate memory; ulimit -v is 1048576 KiB. Raise that limit, or set "
        "OPENREG_DEVICE_MEMORY to fewer bytes\n"
    )
    printed = d.check_run(code, OPENREG_DEVICE_MEMORY="1024G")
    assert printed == f"2 -1 0\n{2 * refusal}True\n"


@pytest.mark.proves("messages.cannot-map-the-memory-of")
def test_no_memory_to_be_had_is_an_error_that_may_pass():
    code = """
    import resource
    device_count()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free_slot = os.dup(0)
    os.close(free_slot)
    # One file more can be opened, and two are needed.
    resource.setrlimit(resource.RLIMIT_NOFILE, (free_slot + 1, before[1]))
    try:
        malloc(8)
    except DeviceError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert os.dup(0) == free_slot  # what was opened was closed again
    p = malloc(8)
    memset(p, 7, 8)
    print(read(p, 8))
    """
    assert d.check_run(code) == (
        "orErrorInitializationError: cannot map the memory of 2 devices: "
        "Too many open files\n" + repr(b"\7" * 8) + "\n"
    )


# Devices


@pytest.mark.proves("emulator.orGetDevice")
def test_current_device_is_the_threads_own():
    seen = []

    def other():
        seen.append(d.get_device())
        d.set_device(1)
        seen.append(d.get_device())

    d.set_device(0)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [0, 1]
    assert d.get_device() == 0


@pytest.mark.proves("emulator.orSetDevice", "errors.codes.orErrorInvalidDevice")
@pytest.mark.parametrize("index", [-1, 2, 2**31 - 1])
def test_index_out_of_range_changes_nothing(index):
    d.set_device(1)
    with refused(
        "orErrorInvalidDevice", f"device {index} is out .* expected 0 to 1"
    ):
        d.set_device(index)
    assert d.get_device() == 1
    d.set_device(0)
    for ask in (d.properties, d.default_stream):
        with refused("orErrorInvalidDevice"):
            ask(index)


@pytest.mark.proves("emulator.orGetDeviceProperties")
def test_properties():
    for index in range(d.device_count()):
        found = d.properties(index)
        assert found.name == b"OpenReg"
        assert found.total_memory == d.address_space().device_capacity
        assert (found.major, found.minor) == (1, 0)
        assert found.multi_processor_count == len(os.sched_getaffinity(0))


@pytest.mark.proves("emulator.orDeviceSynchronize")
@pytest.mark.queued
def test_synchronize_waits_for_the_current_device_alone():
    here, there = d.Gate(), d.Gate()
    there.hold(d.default_stream(1))
    d.call("orDeviceSynchronize")  # device 0, which has nothing to do
    assert not d.is_done("orStreamQuery", d.default_stream(1))
    here.hold(None)
    threading.Timer(0.05, here.open).start()
    d.call("orDeviceSynchronize")
    assert d.is_done("orStreamQuery", None)
    there.open()
    d.synchronize(d.default_stream(1))


@pytest.mark.proves("emulator.orGetDeviceCount", "emulator.orGetAddressSpace")
def test_device_ranges_are_contiguous_and_apart_from_the_kernels():
    space = d.address_space()
    assert space.device_bytes == d.device_count() * space.device_capacity
    assert space.device_base % d.PAGE == 0
    assert abs(space.kernel_offset) >= space.device_bytes
    for index in range(d.device_count()):
        d.set_device(index)
        pointer = d.malloc(8)
        offset = pointer - space.device_base
        assert offset // space.device_capacity == index
        d.free(pointer)
    d.set_device(0)


def test_where_the_answer_should_go_is_needed():
    calls: dict[str, list[Any]] = {
        "orGetDeviceCount": [None],
        "orGetDevice": [None],
        "orGetDeviceProperties": [None, 0],
        "orGetAddressSpace": [None],
        "orMalloc": [None, 8],
        "orMallocHost": [None, 8],
        "orMemGetInfo": [None, None],
        "orPointerGetAttributes": [None, 8],
        "orDeviceGetDefaultStream": [None, 0],
    }
    for name, arguments in calls.items():
        with refused("orErrorInvalidValue", f"{name}: .* is NULL"):
            d.call(name, *arguments)


# Errors


@pytest.mark.proves("emulator.orGetErrorName", "emulator.orGetErrorString")
@pytest.mark.parametrize(("code", "name"), list(enumerate(ERROR_NAMES)))
def test_errors_have_names_and_meanings(code, name):
    assert d.library.orGetErrorName(code).decode() == name
    meaning = d.library.orGetErrorString(code).decode()
    assert meaning
    assert "unknown" not in meaning
    assert re.search(rf"^  {name} = {code},", HEADER.read_text(), re.M)


@pytest.mark.parametrize("code", [-1, len(ERROR_NAMES), 9999])
def test_unknown_errors_have_them_too(code):
    assert d.library.orGetErrorName(code) == b"unknown error code"
    assert d.library.orGetErrorString(code) == b"unknown error code"


@pytest.mark.proves(
    "emulator.orGetLastError",
    "emulator.orPeekAtLastError",
    "emulator.orGetErrorDetail",
)
def test_last_error_stays_until_it_is_taken():
    d.library.orGetLastError()
    with refused("orErrorInvalidDevice"):
        d.set_device(99)
    d.set_device(0)  # a success leaves the last error alone
    invalid_device = ERROR_NAMES.index("orErrorInvalidDevice")
    assert d.library.orPeekAtLastError() == invalid_device
    assert d.library.orGetLastError() == invalid_device
    assert d.library.orGetLastError() == 0
    assert d.library.orGetErrorDetail().startswith(b"device 99 ")


def test_last_error_is_the_threads_own():
    seen = []
    with refused("orErrorInvalidDevice"):
        d.set_device(99)
    thread = threading.Thread(
        target=lambda: seen.extend(
            [d.library.orGetLastError(), d.library.orGetErrorDetail()]
        )
    )
    thread.start()
    thread.join()
    assert seen == [0, b""]


# The launch


class Launch:
    """A kernel that notes its calls, and its release."""

    def __init__(self, answer=0):
        self.calls: list[tuple[str, Any]] = []

        def run(args):
            self.calls.append(("run", args))
            return answer

        self.kernel = d.Kernel(run)
        self.release = d.Release(
            lambda args: self.calls.append(("release", args))
        )

    def __call__(self, **options):
        d.launch(self.kernel, args=42, release=self.release, **options)


@pytest.mark.parametrize("explicit", [False, True])
def test_launch_runs_then_releases(explicit):
    launch = Launch()
    stream = d.default_stream(1) if explicit else None
    launch(stream=stream)
    d.synchronize(stream)
    assert launch.calls == [("run", 42), ("release", 42)]


def test_launch_needs_no_release():
    launch = Launch()
    d.launch(launch.kernel, args=42)
    d.synchronize()
    assert launch.calls == [("run", 42)]


@pytest.mark.proves("errors.codes.orErrorLaunchFailure", "messages.answered")
def test_kernel_that_fails_at_the_call_is_a_launch_failure_and_is_released():
    launch = Launch(answer=ERROR_NAMES.index("orErrorInvalidValue"))
    stream = d.default_stream(1)
    with (
        d.turn(stream),
        refused(
            "orErrorLaunchFailure",
            "kernel gemm on device 1 answered orErrorInvalidValue",
        ),
    ):
        launch(stream=stream, name=b"gemm")
    assert launch.calls == [("run", 42), ("release", 42)]
    Launch()()  # the device goes on


@pytest.mark.parametrize("handle", [1, 8, "inside", "heap"])
def test_unknown_stream_is_refused_without_a_look_at_it(handle):
    buffer = ctypes.create_string_buffer(64)
    handle = {
        "inside": d.default_stream(0) + 1,
        "heap": ctypes.addressof(buffer),
    }.get(handle, handle)
    launch = Launch()
    with refused("orErrorInvalidResourceHandle", f"{handle:#x} is not a"):
        launch(stream=handle)
    assert launch.calls == [("release", 42)]


def test_launch_without_kernel_or_name_is_released():
    launch = Launch()
    with refused("orErrorInvalidValue", "name or fn is NULL"):
        d.launch(None, args=42, release=launch.release)
    with refused("orErrorInvalidValue", "name or fn is NULL"):
        launch(name=None)
    assert launch.calls == [("release", 42)] * 2


def test_launch_is_released_where_there_is_no_device():
    code = """
    calls = []
    release = Release(calls.append)
    try:
        launch(Kernel(lambda args: 0), args=42, release=release)
    except DeviceError as error:
        print(error.name, calls)
    """
    assert (
        d.check_run(code, OPENREG_DEVICE_COUNT="0")
        == "orErrorInvalidDevice [42]\n"
    )


@pytest.mark.proves("emulator.orLaunchKernel")
def test_kernel_works_at_a_constant_distance():
    space = d.address_space()
    pointer = d.malloc(16)
    kernel = d.Kernel(
        lambda args: ctypes.memset(args + space.kernel_offset, 5, 16) and 0
    )
    d.launch(kernel, args=pointer)
    assert d.read(pointer, 16) == b"\5" * 16
    d.free(pointer)


@pytest.mark.proves("emulator.orDeviceGetDefaultStream")
def test_default_streams_differ():
    streams = [d.default_stream(index) for index in range(d.device_count())]
    assert len({None, *streams}) == d.device_count() + 1
    stream = c_void_p()
    assert d.library.orDeviceGetDefaultStream(byref(stream), c_int(0)) == 0
    assert stream.value == streams[0]


# The header


@pytest.mark.parametrize(
    "compiler",
    [
        f"{os.environ.get('CC', 'cc')} -x c -std=c99 -pedantic",
        f"{os.environ.get('CXX', 'c++')} -x c++ -std=c++17",
    ],
)
def test_header_is_c_and_cpp(compiler):
    command = f"{compiler} -fsyntax-only -Wall -Wextra -Werror -"
    done = subprocess.run(
        shlex.split(command),
        input=f'#include "{HEADER}"\nint main(void) {{ return orSuccess; }}\n',
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_library_exports_the_header_and_nothing_else():
    declared = re.findall(
        r"OPENREG_API[^;]*?\b(or[A-Z]\w+)\(", HEADER.read_text()
    )
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", d.library_path()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exported = re.findall(r" T (\w+)$", listed, re.M)
    assert {name for name in exported if name.startswith("or")} == set(declared)
    assert "orMalloc" in declared
    assert not [name for name in exported if "openreg" in name]


def test_each_thread_has_the_complaint_of_its_own_kernel(log):
    """The first says its own before the second does, and ends after it."""
    said = [threading.Event(), threading.Event()]
    answers: list[str] = [""] * 2

    def run(index):
        d.set_device(index)
        stream = d.make_stream()

        def kernel(args):
            if index == 1:
                said[0].wait()
            d.library.orSetKernelError(b"complaint %d" % index)
            said[index].set()
            said[1].wait()
            return 9

        try:
            d.launch(log.keep(d.Kernel(kernel)), stream)
            d.synchronize(stream)
        except d.DeviceError as error:
            answers[index] = str(error)
        d.call("orDeviceReset")
        d.call("orStreamDestroy", stream)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, answer in enumerate(answers):
        assert f"orErrorLaunchFailure: complaint {index}" in answer
