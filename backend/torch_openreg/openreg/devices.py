"""Devices: which is current, what each is, and waits for it.

The module is not called `device`, as that is the class in torch.openreg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.types import Device

from torch_openreg import _C
from torch_openreg.openreg._lazy import _lazy_init, is_available
from torch_openreg.openreg._utils import _get_device_index

if TYPE_CHECKING:
    from torch_openreg._C import _OpenRegDeviceProperties

__all__ = [
    "can_device_access_peer",
    "current_device",
    "device",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_bf16_supported",
    "reset_device",
    "set_device",
    "synchronize",
]


# [py-device-current] Each thread has a current device.
def current_device() -> int:
    """Returns the index of this thread's current device."""
    _lazy_init()
    return _C._get_device()


def set_device(device: Device) -> None:
    """Makes `device` this thread's current device.

    Prefer the context manager `torch.openreg.device`, which also goes back.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`.

    Raises:
        RuntimeError: The index is out of range.
        ValueError: It is not an openreg device.
    """
    _lazy_init()
    _C._set_device(_get_device_index(device, optional=True))


# [/py-device-current]


# [py-device-context] Makes a device current for a `with` statement.
class device:
    """Makes a device current, and the former one again at the end.

    One object may be used again, also inside itself.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`; an index below 0
            means to change nothing.

    Raises:
        RuntimeError: The index is out of range (on entry).
        ValueError: It is not an openreg device.
    """

    def __init__(self, device: Device) -> None:
        self.idx = _get_device_index(device, optional=True)
        self._previous: list[int] = []

    def __enter__(self) -> None:
        _lazy_init()
        self._previous.append(_C._maybe_exchange_device(self.idx))

    def __exit__(self, *_: object) -> None:
        _C._maybe_exchange_device(self._previous.pop())


# [/py-device-context]


class device_of(device):
    """As `device`, for the device that a tensor or storage is on.

    Args:
        obj: What to follow; if it is not on an openreg device, nothing changes.
    """

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        here = obj.device.type == "openreg"
        super().__init__(obj.device if here else -1)


def synchronize(device: Device = None) -> None:
    """Waits for all work of `device`, by default the current one.

    Other Python threads run meanwhile.
    """
    _lazy_init()
    _C._synchronize(_get_device_index(device, optional=True))


def reset_device(device: Device = None) -> None:
    """Ends the failed state of `device`, by default the current one.

    A device fails when work that was queued for it does; it then refuses all
    launches and waits. What was allocated stays valid. Work that was queued
    behind the failed one is lost, so its results are not to be trusted.
    """
    _lazy_init()
    _C._reset_device(_get_device_index(device, optional=True))


def get_device_properties(device: Device = None) -> _OpenRegDeviceProperties:
    """Returns what there is to know about `device`, by default the current one.

    The attributes are `name`, `major` and `minor` (the capability),
    `total_memory` in bytes, and `multi_processor_count`.

    Raises:
        RuntimeError: The index is out of range.
        ValueError: It is not an openreg device.
    """
    _lazy_init()
    return _C._get_device_properties(_get_device_index(device, optional=True))


def get_device_name(device: Device = None) -> str:
    """Returns the name of `device`, by default the current one."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Returns the major and minor capability of `device`."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns whether there is a device, since each computes in bfloat16.

    Args:
        including_emulation: As in `torch.cuda`; it changes nothing here.
    """
    return is_available()


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Returns whether `device` reaches the memory of `peer_device` itself.

    Devices of the emulator do, without a copy on the host. As in CUDA, no
    device is a peer of itself.

    Raises:
        RuntimeError: An index is out of range.
        ValueError: One is not an openreg device, or the peer has no index.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    peer = _get_device_index(peer_device)
    for each in index, peer:
        _C._get_device_properties(each)  # raises if there is none
    return index != peer
