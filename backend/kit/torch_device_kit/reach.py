"""Methods of a backend that Python reaches through PyTorch's C ABI alone."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

LIBRARIES = Path(torch.__file__).parent / "lib"
PRIVATEUSE1 = 20  # its number in c10::DeviceType


class Device(ctypes.Structure):
    """c10::Device"""

    _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]


class Stream(ctypes.Structure):
    """c10::Stream"""

    _fields_ = [("device", Device), ("id", ctypes.c_int64)]


Methods = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))


def guard() -> ctypes._Pointer[ctypes._Pointer[ctypes.c_void_p]]:
    """The guard that PyTorch has registered; its first word is its methods."""
    guards = (Methods * (PRIVATEUSE1 + 1)).in_dll(
        ctypes.CDLL(str(LIBRARIES / "libc10.so")),
        "_ZN3c104impl26device_guard_impl_registryE",
    )
    if not guards[PRIVATEUSE1]:
        raise LookupError("No guard is registered for PrivateUse1.")
    return guards[PRIVATEUSE1]


def guard_type() -> int:
    """The device type that the guard says it guards: its first method."""
    found = guard()
    ask = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(found[0][0])
    return int(ask(ctypes.cast(found, ctypes.c_void_p)))


def default_stream(device: int) -> tuple[int, int, int]:
    """Type, index and number of the guard's default stream of a device.

    A guard that does not say ends the process: its exception finds no C++
    above it that would catch it.
    """
    found = guard()
    ask = ctypes.CFUNCTYPE(Stream, ctypes.c_void_p, Device)(found[0][6])
    stream = ask(
        ctypes.cast(found, ctypes.c_void_p), Device(PRIVATEUSE1, device)
    )
    return stream.device.type, stream.device.index, stream.id


def is_built() -> bool:
    """What the hooks say; PyTorch 2.13 has no function that asks them."""
    libtorch = ctypes.CDLL(str(LIBRARIES / "libtorch_cpu.so"))
    hooks_of = libtorch._ZN2at6detail19getPrivateUse1HooksEv
    hooks_of.restype = Methods
    hooks = hooks_of()
    ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(
        hooks[0][2]  # after the two entries of the destructor
    )
    return bool(ask(ctypes.cast(hooks, ctypes.c_void_p)))


def from_blob(address: int, device_index: int) -> str:
    """at::from_blob of two floats at an address: "" or what went wrong.

    It asks the backend where the address is, and compares.
    """
    libtorch = ctypes.CDLL(str(LIBRARIES / "libtorch_cpu.so"))
    said = libtorch.torch_exception_get_what_without_backtrace
    said.restype = ctypes.c_char_p
    sizes, strides = (ctypes.c_int64 * 1)(2), (ctypes.c_int64 * 1)(1)
    tensor = ctypes.c_void_p()
    status = libtorch.aoti_torch_create_tensor_from_blob(
        ctypes.c_void_p(address),
        ctypes.c_int64(1),
        sizes,
        strides,
        ctypes.c_int64(0),
        libtorch.aoti_torch_dtype_float32(),
        libtorch.aoti_torch_device_type_privateuse1(),
        ctypes.c_int32(device_index),
        ctypes.byref(tensor),
    )
    if status == 0:
        libtorch.aoti_torch_delete_tensor_object(tensor)
        return ""
    return str(said().decode())
