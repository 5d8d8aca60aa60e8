"""Pending work, slow work, and what devices do: for tests and examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.types import Device

from torch_openreg import _C
from torch_openreg.openreg._lazy import _lazy_init
from torch_openreg.openreg._utils import _get_device_index
from torch_openreg.openreg.streams import current_stream

__all__ = ["Gate", "Record", "sleep", "trace"]


# [py-testing-gate] Holds a stream back until the host opens it.
class Gate:
    """Holds work of a stream back, so that what is pending is no accident.

    It is closed at first. With `OPENREG_LAUNCH=blocking` nothing is ever
    pending: there `hold` waits until another thread opens the gate.
    """

    def __init__(self) -> None:
        _lazy_init()
        self._flag = torch.zeros(1, dtype=torch.int64).pin_memory()

    def hold(self, stream: torch.Stream | None = None) -> None:
        """Later work of `stream`, by default the current one, waits."""
        if stream is None:
            stream = current_stream()
        _C._stream_wait_value(
            stream.device_index, stream.stream_id, self._flag, 1
        )

    def open(self) -> None:
        """What was held goes on, and will never be held by this gate again."""
        self._flag.fill_(1)


# [/py-testing-gate]


def sleep(milliseconds: int, device: Device = None) -> None:
    """Launches a kernel that takes `milliseconds` on the current stream."""
    _lazy_init()
    _C._sleep(_get_device_index(device, optional=True), milliseconds)


# [py-testing-trace] The device's records of what it does.
class Record(NamedTuple):
    """Something that happened on a device."""

    phase: str  # "launch", "start" or "end"
    kind: str  # "kernel", "turn", "copy", "set" or "host function"
    name: str  # an operator's: "aten::add.Tensor"; of a copy, its direction
    device: int
    thread: int  # that launched it, as threading.get_native_id() has it
    stream: int  # 0: a default stream, else a number for each made stream
    bytes: int  # of a copy or a set, else 0
    work: int  # the same in the records of one piece of work
    time_ns: int  # of time.monotonic_ns()


@contextmanager
def trace() -> Iterator[list[Record]]:
    """Collects what all devices do; the list is filled at the end.

    Each kernel, copy and fill has three records: its launch, start and end.
    A kernel that runs on the calling thread takes its turn there, and is of
    kind `turn`; the launch mode says which do. Traces may overlap.

    What is still pending then leaves no further record: synchronize first.
    `torch.openreg.show_calls` prints the calls of operators instead.
    """
    _lazy_init()
    records: list[Record] = []
    running = _C._begin_trace()
    try:
        yield records
    finally:
        records.extend(Record(*record) for record in _C._end_trace(running))


# [/py-testing-trace]
