"""torch.distributed on the device: what is registered, and how a group begins.

The collectives are csrc/distributed's. Their transport is Gloo, which PyTorch
brings and whose header cannot be included; therefore it is made here.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from torch_openreg import _C, batch_norm

__all__ = ["BACKEND", "register"]

BACKEND = "orccl"


# [py-distributed-create] A group's backend, made by init_process_group.
def create(group: Any, _: object) -> _C._Collectives:
    """Returns the collectives of the device over transports of their own."""

    def connect(what: str, how: Any) -> dist.ProcessGroupGloo:
        store = dist.PrefixStore(what, group.store)
        who = group.group_rank, group.group_size
        return dist.ProcessGroupGloo(store, *who, how)

    transport = connect("bytes", group.timeout)
    options: Any = transport.options
    # Gloo looks them up when it is split, also where PyTorch leaves them out.
    ranks = group.global_ranks_in_group or list(range(group.group_size))
    options.global_ranks_in_group = ranks
    options.group_name = group.group_id
    # Who splits a group copies its options, for which there is no method.
    copyreg.pickle(type(options), _reduce)
    # With the same options, one thread serves the connections of both.
    return _C._Collectives(transport, connect("words", options))


def _reduce(options: Any) -> tuple[Callable[[], Any], tuple[()]]:
    def copy() -> Any:
        new = type(options)()
        new._timeout = options._timeout
        new._threads = options._threads
        new._devices = options._devices
        return new

    return copy, ()


# [/py-distributed-create]


# [py-distributed-register] Registers a name, and makes it the device's default.
def register() -> None:
    """Makes `init_process_group` choose these collectives for the device."""
    if hasattr(_C, "_Collectives"):  # the minimal path has none
        dist.Backend.register_backend(
            BACKEND, create, extended_api=True, devices=["openreg"]
        )
        batch_norm.register()


# [/py-distributed-register]
