"""torch.openreg: the devices, seen from Python.

The names are those of torch.cuda. Much of PyTorch looks them up by name on the
module of whatever device a tensor is on, which is why they must be these.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

import torch
from torch.types import Device

from torch_openreg import _C
from torch_openreg.openreg._utils import _get_device_index

if TYPE_CHECKING:
    from torch_openreg._C import _OpenRegDeviceProperties

default_generators: tuple[torch.Generator, ...] = ()
"""The default generator of each device; empty until the backend is in use."""

OutOfMemoryError = torch.OutOfMemoryError

_initialized = False
_initialization_lock = threading.Lock()
_waiting_seeds: dict[int, int] = {}


# [py-init-query] Questions that may be asked without waking the device.
def device_count() -> int:
    """Returns the number of devices; 0 when there are none to be had."""
    return _C._get_device_count()


def is_available() -> bool:
    """Returns whether there is at least one device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Returns whether the backend has been used, or `init` has been called."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had used the devices."""
    return _C._is_in_bad_fork()


# [/py-init-query]


def init() -> None:
    """Brings the devices up, which their first use does by itself.

    Raises:
        RuntimeError: There is no device, or this process was forked from one
            that had used the devices.
    """
    _lazy_init()


# [py-init-lazy] The first use of a device wakes the backend, once.
def _lazy_init() -> None:
    global _initialized, default_generators
    if is_initialized():
        return
    with _initialization_lock:
        if is_initialized():  # by another thread, while this one waited
            return
        if _is_in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize openreg in forked subprocess. To use "
                "openreg with multiprocessing, you must use the 'spawn' start "
                "method"
            )
        _C._init()
        default_generators = tuple(
            _C._get_default_generator(index) for index in range(device_count())
        )
        for index, seed in _waiting_seeds.items():
            default_generators[index].manual_seed(seed)
        _initialized = True
        atexit.register(_finish)


# [/py-init-lazy]


def _finish() -> None:
    """Is called at exit, while threads may still need the interpreter."""
    if is_initialized():
        _C._drain_autograd()


# [py-init-seed] Seeding alone does not wake the backend.
def _seed_device(device: int, seed: int) -> None:
    """Seeds a device's generator, at once or when the backend wakes."""
    with _initialization_lock:
        if not is_initialized():
            torch.Generator().manual_seed(seed)  # raises now, if it must
            _waiting_seeds[device] = seed
            return
    default_generators[device].manual_seed(seed)


# [/py-init-seed]


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


# [py-device-context] A device for the time of a with statement.
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


from torch_openreg.openreg.amp import *  # noqa: E402, F403
from torch_openreg.openreg.memory import *  # noqa: E402, F403
from torch_openreg.openreg.random import *  # noqa: E402, F403
from torch_openreg.openreg.sharing import *  # noqa: E402, F403
from torch_openreg.openreg.streams import *  # noqa: E402, F403
from torch_openreg.openreg.tensor_types import *  # noqa: E402, F403
from torch_openreg.openreg.tracing import *  # noqa: E402, F403
