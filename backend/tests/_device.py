"""libopenreg.so through ctypes: the device as its own tests see it.

No torch in here. A test that needs a process of its own (another environment,
a fault, a fork) writes it as a string for `run`, which starts in about 50 ms.
"""

import ctypes
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

# The number of an address, of a stream or of an event.
Pointer = int | None
T = TypeVar("T")
Data = TypeVar("Data", bound="ctypes._CDataType")

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(
    5
)
UNREGISTERED, HOST, DEVICE = range(3)
PAGE = os.sysconf("SC_PAGESIZE")
# Seconds that a process or a thread may take before a test gives it up: only
# one that hangs takes so long, on however busy a machine.
PATIENCE = 1200

CountThreads = ctypes.CFUNCTYPE(c_int)
CopyPart = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t)
ShareOut = ctypes.CFUNCTYPE(None, c_int, c_size_t, CopyPart, c_void_p)
Kernel = ctypes.CFUNCTYPE(c_int, c_void_p)
Release = ctypes.CFUNCTYPE(None, c_void_p)
HostFunction = Release


class DeviceProp(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 64),
        ("total_memory", c_size_t),
        ("major", c_int),
        ("minor", c_int),
        ("multi_processor_count", c_int),
    ]


class AddressSpace(ctypes.Structure):
    _fields_ = [
        ("device_base", c_size_t),
        ("device_bytes", c_size_t),
        ("device_capacity", c_size_t),
        ("kernel_offset", ctypes.c_ssize_t),
    ]


class PointerAttributes(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("device", c_int),
        ("base", c_void_p),
        ("size", c_size_t),
    ]


class MemHandle(ctypes.Structure):
    _fields_ = [("fd", c_int), ("offset", c_size_t), ("size", c_size_t)]


class HostThreads(ctypes.Structure):
    _fields_ = [("count", CountThreads), ("share", ShareOut)]


class TraceRecord(ctypes.Structure):
    _fields_ = [
        ("phase", c_int),
        ("kind", c_int),
        ("name", c_char_p),
        ("device", c_int),
        ("thread", c_int),
        ("stream", c_uint64),
        ("bytes", c_size_t),
        ("work", c_uint64),
        ("time_ns", c_uint64),
    ]


TraceFunction = ctypes.CFUNCTYPE(None, POINTER(TraceRecord), c_void_p)


class DeviceError(Exception):
    """What a call answered, by name, and the sentence it left."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


def library_path() -> Path:
    """The libopenreg.so of the installed package, which is not imported."""
    if override := os.environ.get("OPENREG_LIBRARY"):
        return Path(override)
    spec = importlib.util.find_spec("torch_openreg")
    found = spec.submodule_search_locations if spec else None
    packages = [Path(folder) for folder in found or []]
    # An editable install keeps the package in the tree, its libraries not.
    packages.append(Path(sysconfig.get_path("purelib"), "torch_openreg"))
    for package in packages:
        path = Path(package, "lib", "libopenreg.so")
        if path.exists():
            return path
    raise FileNotFoundError(
        f"no lib/libopenreg.so in {packages}: run nox -s build"
    )


def load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    for name in ("orGetErrorName", "orGetErrorString", "orGetErrorDetail"):
        getattr(library, name).restype = c_char_p
    library.orExplainFault.restype = c_size_t
    library.orStreamGetCapture.restype = c_uint64
    pointers = {
        "orMalloc": [POINTER(c_void_p), c_size_t],
        "orFree": [c_void_p],
        "orMallocHost": [POINTER(c_void_p), c_size_t],
        "orFreeHost": [c_void_p],
        "orPointerGetAttributes": [POINTER(PointerAttributes), c_void_p],
        "orMemcpy": [c_void_p, c_void_p, c_size_t, c_int],
        "orMemset": [c_void_p, c_int, c_size_t],
        "orLaunchKernel": [c_void_p, c_char_p, c_void_p, c_void_p, c_void_p],
        "orDeviceGetDefaultStream": [POINTER(c_void_p), c_int],
        "orMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
        "orMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
        "orSetHostThreads": [POINTER(HostThreads)],
        "orSetKernelError": [c_char_p],
        "orLaunchHostFunc": [c_void_p, c_void_p, c_void_p, c_void_p],
        "orStreamCreateWithPriority": [POINTER(c_void_p), c_int],
        "orStreamDestroy": [c_void_p],
        "orStreamGetDevice": [c_void_p, POINTER(c_int)],
        "orStreamGetPriority": [c_void_p, POINTER(c_int)],
        "orStreamQuery": [c_void_p],
        "orStreamSynchronize": [c_void_p],
        "orStreamWaitEvent": [c_void_p, c_void_p],
        "orStreamWaitValue64": [c_void_p, c_void_p, c_uint64],
        "orStreamBeginTurn": [c_void_p, c_char_p],
        "orStreamEndTurn": [c_void_p],
        "orStreamRunsInline": [c_void_p],
        "orEventCreate": [POINTER(c_void_p), c_uint],
        "orEventDestroy": [c_void_p],
        "orEventRecord": [c_void_p, c_void_p],
        "orEventQuery": [c_void_p],
        "orEventSynchronize": [c_void_p],
        "orEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
        "orStreamBeginCapture": [c_void_p],
        "orStreamEndCapture": [c_void_p, POINTER(c_void_p)],
        "orStreamGetCapture": [c_void_p],
        "orGraphLaunch": [c_void_p, c_void_p],
        "orGraphDestroy": [c_void_p],
        "orGraphDebugDotPrint": [c_void_p, c_char_p],
        "orTraceSubscribe": [c_void_p, c_void_p, c_void_p],
        "orTraceUnsubscribe": [c_void_p],
        "orExplainFault": [c_void_p, c_char_p, c_size_t],
        "orIpcGetMemHandle": [POINTER(MemHandle), c_void_p],
        "orIpcOpenMemHandle": [POINTER(c_void_p), POINTER(MemHandle)],
        "orIpcCloseMemHandle": [c_void_p],
    }
    for name, types in pointers.items():
        getattr(library, name).argtypes = types
    return library


library = load()


def call(name: str, *arguments: Any) -> None:
    """Calls `name` and raises DeviceError unless it answers orSuccess."""
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise DeviceError(
            library.orGetErrorName(code).decode(),
            library.orGetErrorDetail().decode(),
        )


def filled(kind: type[Data], name: str, *arguments: Any) -> Data:
    """What a call writes through its first parameter."""
    data = kind()
    call(name, byref(data), *arguments)
    return data


def result(
    kind: "type[ctypes._SimpleCData[T]]", name: str, *arguments: Any
) -> T:
    """The same for a number."""
    return filled(kind, name, *arguments).value


def device_count() -> int:
    return result(c_int, "orGetDeviceCount")


def get_device() -> int:
    return result(c_int, "orGetDevice")


def set_device(index: int) -> None:
    call("orSetDevice", index)


def properties(index: int) -> DeviceProp:
    return filled(DeviceProp, "orGetDeviceProperties", index)


def address_space() -> AddressSpace:
    return filled(AddressSpace, "orGetAddressSpace")


def malloc(size: int) -> Pointer:
    return result(c_void_p, "orMalloc", size)


def free(pointer: Pointer) -> None:
    call("orFree", pointer)


def malloc_host(size: int) -> Pointer:
    return result(c_void_p, "orMallocHost", size)


def free_host(pointer: Pointer) -> None:
    call("orFreeHost", pointer)


def memory_info() -> tuple[int, int]:
    """Free and total bytes of the current device."""
    available, total = c_size_t(), c_size_t()
    call("orMemGetInfo", byref(available), byref(total))
    return available.value, total.value


class Attributes(NamedTuple):
    type: int
    device: int
    base: Pointer  # None of memory that nobody has registered
    size: int


def attributes(pointer: Pointer) -> Attributes:
    """What the device itself says about an address."""
    found = filled(PointerAttributes, "orPointerGetAttributes", pointer)
    return Attributes(found.type, found.device, found.base, found.size)


def memcpy(dst: Pointer, src: Pointer, count: int, kind: int = DEFAULT) -> None:
    call("orMemcpy", dst, src, count, kind)


def memset(pointer: Pointer, value: int, count: int) -> None:
    call("orMemset", pointer, value, count)


def write(pointer: Pointer, data: bytes) -> None:
    """Copies bytes to the device."""
    source = ctypes.cast(ctypes.c_char_p(data), c_void_p).value
    memcpy(pointer, source, len(data), HOST_TO_DEVICE)


def read(pointer: Pointer, count: int) -> bytes:
    """Copies bytes from the device."""
    buffer = ctypes.create_string_buffer(count)
    memcpy(ctypes.addressof(buffer), pointer, count, DEVICE_TO_HOST)
    return buffer.raw


def default_stream(index: int) -> Pointer:
    return result(c_void_p, "orDeviceGetDefaultStream", index)


def launch(
    kernel: Any,
    stream: Pointer = None,
    args: Pointer = None,
    release: Any = None,
    name: bytes | None = b"test",
) -> None:
    call(
        "orLaunchKernel",
        stream,
        name,
        ctypes.cast(kernel, c_void_p) if kernel else None,
        args,
        ctypes.cast(release, c_void_p) if release else None,
    )


def ipc_get(pointer: Pointer) -> MemHandle:
    return filled(MemHandle, "orIpcGetMemHandle", pointer)


def ipc_open(handle: MemHandle) -> Pointer:
    return result(c_void_p, "orIpcOpenMemHandle", byref(handle))


def ipc_close(pointer: Pointer) -> None:
    call("orIpcCloseMemHandle", pointer)


def launch_host(
    function: Any,
    stream: Pointer = None,
    args: Pointer = None,
    release: Any = None,
) -> None:
    call(
        "orLaunchHostFunc",
        stream,
        ctypes.cast(function, c_void_p) if function else None,
        args,
        ctypes.cast(release, c_void_p) if release else None,
    )


def make_stream(priority: int = 0) -> Pointer:
    return result(c_void_p, "orStreamCreateWithPriority", priority)


def make_event(flags: int = 0) -> Pointer:
    return result(c_void_p, "orEventCreate", flags)


def record(event: Pointer, stream: Pointer = None) -> None:
    call("orEventRecord", event, stream)


def wait_event(stream: Pointer, event: Pointer) -> None:
    call("orStreamWaitEvent", stream, event)


def is_done(name: str, handle: Pointer) -> bool:
    """What orStreamQuery or orEventQuery answers, as a bool."""
    answer = getattr(library, name)(handle)
    if library.orGetErrorName(answer) == b"orErrorNotReady":
        return False
    call(name, handle)
    return True


def synchronize(stream: Pointer = None) -> None:
    call("orStreamSynchronize", stream)


@contextmanager
def turn(stream: Pointer = None, name: bytes = b"turn") -> Iterator[None]:
    call("orStreamBeginTurn", stream, name)
    try:
        yield
    finally:
        call("orStreamEndTurn", stream)


@contextmanager
def turn_of_another_thread(
    stream: Pointer, at_its_end: Callable[[], object]
) -> Iterator[threading.Event]:
    """Another thread's turn, which the event that this yields ends."""
    begun, go_on = threading.Event(), threading.Event()

    def take() -> None:
        with turn(stream):
            begun.set()
            go_on.wait()
            at_its_end()

    thread = threading.Thread(target=take)
    thread.start()
    begun.wait()
    try:
        yield go_on
    finally:
        go_on.set()
        thread.join()


class Gate:
    """Holds a stream back until the host opens it."""

    def __init__(self) -> None:
        self.value = c_uint64(0)
        # A worker reads it after the interpreter has cleared its modules.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.value))

    def hold(self, stream: Pointer) -> None:
        address = ctypes.addressof(self.value)
        call("orStreamWaitValue64", stream, address, 1)

    def open(self) -> None:
        self.value.value = 1


class Log(list[Any]):
    """Kernels and host functions that note what they were told to."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[object] = []

    def kernel(self, entry: object, answer: int = 0) -> Any:
        return self.keep(Kernel(lambda args: self.note(entry, answer)))

    def host(self, entry: object) -> Any:
        return self.keep(HostFunction(lambda args: self.append(entry)))

    def note(self, entry: object, answer: int) -> int:
        self.append(entry)
        return answer

    def keep(self, function: Any) -> Any:
        self.kept.append(function)
        return function


def explain_fault(address: int, size: int = 512) -> str:
    buffer = ctypes.create_string_buffer(size)
    length = library.orExplainFault(address, buffer, size)
    assert length == len(buffer.value)
    return buffer.value.decode()


def run(
    code: str, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh process that has all of this module's names."""
    here = str(Path(__file__).parent)
    variables = {
        **os.environ,
        "PYTHONPATH": here,
        "OPENREG_LIBRARY": str(library_path()),
        **environment,
    }
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from _device import *\n" + textwrap.dedent(code),
        ],
        env={k: v for k, v in variables.items() if v is not None},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def compiler() -> list[str]:
    """The C++ compiler that tests call, with what CXX adds to its name."""
    return shlex.split(os.environ.get("CXX", "c++"))


def build(source: str, folder: Path) -> Path:
    """Compiles a program of this folder against the library."""
    here = Path(__file__).parent
    program = folder / Path(source).stem
    library = library_path()
    subprocess.run(
        [
            *compiler(),
            *("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror"),
            f"-I{here.parent}",
            str(here / source),
            str(library),
            f"-Wl,-rpath,{library.parent}",
            "-lpthread",
            *("-o", str(program)),
        ],
        check=True,
    )
    return program


def check_run(code: str, **environment: str | None) -> str:
    """As `run`, for code that must end well; what it printed."""
    done = run(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(name: str, match: str = "") -> Any:
    """Expects a DeviceError of this name, with a sentence that matches."""
    import pytest  # which the code of `run` does without

    return pytest.raises(DeviceError, match=f"^{name}: .*{match}")


# A call of each kind that needs the configuration.
ASK_EVERYTHING = """
    import itertools
    value, other = c_size_t(), c_size_t()
    space, prop, about = AddressSpace(), DeviceProp(), PointerAttributes()
    calls = {
        "orGetDeviceCount": [byref(value)],
        "orGetDevice": [byref(value)],
        "orSetDevice": [0],
        "orGetDeviceProperties": [byref(prop), 0],
        "orDeviceSynchronize": [],
        "orGetAddressSpace": [byref(space)],
        "orMalloc": [byref(c_void_p()), 8],
        "orFree": [8],
        "orMallocHost": [byref(c_void_p()), 8],
        "orFreeHost": [8],
        "orMemGetInfo": [byref(value), byref(other)],
        "orPointerGetAttributes": [byref(about), None],
        "orMemcpy": [None, None, 0, DEFAULT],
        "orMemset": [None, 0, 0],
        "orLaunchKernel": [None, b"", None, None, None],
        "orDeviceGetDefaultStream": [byref(c_void_p()), 0],
    }
    for name, arguments in calls.items():
        try:
            call(name, *arguments)
            print(name, "orSuccess")
        except DeviceError as error:
            print(name, error)
"""
