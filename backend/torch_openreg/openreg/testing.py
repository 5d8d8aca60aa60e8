"""Work that waits or takes time, for tests, examples and benchmarks."""

from __future__ import annotations

import torch
from torch.types import Device

from torch_openreg import _C, openreg
from torch_openreg.openreg._utils import _get_device_index

__all__ = ["Gate", "sleep"]


# [py-testing-gate] A stream that stands still until the host says so.
class Gate:
    """Holds work of a stream back, so that what is pending is no accident.

    It is closed at first. With `OPENREG_LAUNCH=blocking` nothing is ever
    pending: there `hold` waits until another thread opens the gate.
    """

    def __init__(self) -> None:
        openreg._lazy_init()
        self._flag = torch.zeros(1, dtype=torch.int64).pin_memory()

    def hold(self, stream: torch.Stream | None = None) -> None:
        """Later work of `stream`, by default the current one, waits."""
        if stream is None:
            stream = openreg.current_stream()
        _C._stream_wait_value(
            stream.device_index, stream.stream_id, self._flag, 1
        )

    def open(self) -> None:
        """What was held goes on, and will never be held by this gate again."""
        self._flag.fill_(1)


# [/py-testing-gate]


def sleep(milliseconds: int, device: Device = None) -> None:
    """Launches a kernel that takes `milliseconds` on the current stream."""
    openreg._lazy_init()
    _C._sleep(_get_device_index(device, optional=True), milliseconds)
