"""Storages for several processes: what torch.multiprocessing sends is shared.

Importing this module tells `multiprocessing` how a storage of a device is sent
over its queues, pipes and to new processes. PyTorch sends a tensor as a storage
and a shape, so tensors need next to nothing of their own.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import threading
import weakref
from multiprocessing import context, reduction
from typing import Any, NamedTuple

import torch
from torch.multiprocessing import reductions

from torch_openreg import _C
from torch_openreg.openreg._lazy import _lazy_init
from torch_openreg.openreg.devices import synchronize

__all__ = ["ipc_collect"]


# [py-sharing-lease] A lease ends when no process has its other end open.
class _Lease(NamedTuple):
    """A storage that another process uses, or is about to."""

    storage: torch.UntypedStorage
    ours: socket.socket
    theirs: socket.socket
    launch: weakref.ref[Any] | None  # of the process that inherits theirs

    def drop_copy(self) -> None:
        """Closes this process's copy of the other end, once it was passed on.

        A new process inherits it, so it stays open until there is a process,
        or until there will be none.
        """
        launch = self.launch and self.launch()
        if launch is None or hasattr(launch, "pid"):
            self.theirs.close()


# [/py-sharing-lease]

_leases: dict[int, _Lease] = {}  # by the descriptor of our end
_lock = threading.Lock()


# [py-sharing-collect] A socket reports that no process has its other end open.
def ipc_collect() -> None:
    """Frees the memory that other processes have let go of.

    Sharing another tensor does the same. A process lets go of a tensor when it
    frees it and when it ends, however it ends.

    Raises:
        RuntimeError: As for `init`.
    """
    _lazy_init()
    with _lock:
        hung_up = select.poll()
        for lease in _leases.values():
            lease.drop_copy()
            hung_up.register(lease.ours, 0)
        for descriptor, _ in hung_up.poll(0):
            _leases.pop(descriptor).ours.close()


# [/py-sharing-collect]


def _close() -> None:
    """Is called at exit. What is still open elsewhere lives on there."""
    for lease in _leases.values():
        lease.ours.close()
        lease.theirs.close()
    _leases.clear()


# [py-sharing-send] The pickle says where the memory is; it holds no bytes.
def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    """Is called by `multiprocessing` for each storage that is sent."""
    if storage.device.type != "openreg":
        host: tuple[Any, ...] = reductions.reduce_storage(storage)
        return host
    device = storage.device.index
    if storage.nbytes() == 0:
        return _empty_storage, (device,)
    ipc_collect()
    # Whoever sends need not be the thread whose streams write the storage.
    synchronize(device)
    segment, start, size = _C._share_storage(storage)
    memory, offset, _ = segment
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"memory"], [memory])
    key = (*reductions.fd_id(memory), offset + start, size)
    lease = reduction.DupFd(theirs.fileno())
    launch = context.get_spawning_popen()
    with _lock:
        _leases[ours.fileno()] = _Lease(
            storage, ours, theirs, weakref.ref(launch) if launch else None
        )
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return _rebuild_storage, (device, segment[1:], start, size, key, lease)


# [/py-sharing-send]


def _empty_storage(device: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(device=torch.device("openreg", device))


# [py-sharing-receive] A storage that this process already has is used again.
def _rebuild_storage(
    device: int,
    segment: tuple[int, int],
    start: int,
    size: int,
    key: tuple[int, ...],
    lease: Any,
) -> torch.UntypedStorage:
    """Is called by the process that receives what _reduce_storage returned."""
    with socket.socket(fileno=lease.detach()) as channel, _lock:
        known: torch.UntypedStorage | None = reductions.storage_from_cache(
            torch.UntypedStorage, key
        )
        if known is not None:
            return known
        os.set_inheritable(channel.fileno(), False)
        _lazy_init()
        _, (memory,), _, _ = socket.recv_fds(channel, 16, 1)
        try:
            storage = _C._open_storage(
                device, (memory, *segment), start, size, channel.fileno()
            )
        finally:
            os.close(memory)
        channel.detach()
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


# [/py-sharing-receive]


# [py-sharing-register] The reducers for all that multiprocessing sends.
def _reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """PyTorch's own, which forgets the conjugate and the negative bit."""
    reduced: tuple[Any, ...] = reductions.reduce_tensor(tensor)
    if tensor.device.type == "openreg" and (
        tensor.is_conj() or tensor.is_neg()
    ):
        reduced = tensor.__reduce_ex__(2)
    return reduced


for _kind in (torch.Tensor, torch.nn.Parameter):
    reduction.register(_kind, _reduce_tensor)
reduction.register(torch.UntypedStorage, _reduce_storage)
atexit.register(_close)
# [/py-sharing-register]
