"""The devices wake at their first use, and not before.

A program may import torch, ask whether there are devices, seed them, and start
processes, all without one that is brought up.
"""

from __future__ import annotations

import atexit
import threading

import torch

from torch_openreg import _C

__all__ = [
    "_is_in_bad_fork",
    "_lazy_init",
    "device_count",
    "init",
    "is_available",
    "is_initialized",
]

_initialized = False
_initialization_lock = threading.Lock()
_waiting_seeds: dict[int, int] = {}


# [py-init-query] Functions that do not initialize the backend.
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


# [py-init-lazy] The first use of a device initializes the backend, once.
def _lazy_init() -> None:
    global _initialized
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
        for index, seed in _waiting_seeds.items():
            _C._get_default_generator(index).manual_seed(seed)
        _initialized = True
        _tell_pytorch()
        atexit.register(_finish)


def _tell_pytorch() -> None:
    """Sets what PyTorch reads on the module torch.openreg, without a call."""
    from torch_openreg import openreg

    openreg.default_generators = tuple(
        map(_C._get_default_generator, range(device_count()))
    )
    openreg._initialized = True


# [/py-init-lazy]


def _finish() -> None:
    """Is called at exit, while threads may still need the interpreter."""
    if is_initialized():
        _C._drain_autograd()


# [py-init-seed] Seeding alone does not initialize the backend.
def _seed_device(device: int, seed: int) -> None:
    """Seeds a device's generator, at once or when the backend wakes."""
    with _initialization_lock:
        if not is_initialized():
            torch.Generator().manual_seed(seed)  # raises now, if it must
            _waiting_seeds[device] = seed
            return
    _C._get_default_generator(device).manual_seed(seed)


# [/py-init-seed]
