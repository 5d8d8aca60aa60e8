"""Streams and events: what orders the work of a device."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch.types import Device

from torch_openreg import _C
from torch_openreg.openreg._lazy import _lazy_init
from torch_openreg.openreg._utils import _get_device_index

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]

S = TypeVar("S", bound="Stream")
_DEVICE_TYPE = 20  # of privateuseone, in c10/core/DeviceType.h


# [py-streams-stream] A torch.Stream that can say its priority.
class Stream(torch.Stream):
    """A queue of work that a device does in order.

    A pool of 32 streams for each device and priority is handed out in turn, so
    that two of these objects may stand for one stream.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`; by default the
            current one.
        priority: 0, or -1 for a stream that goes first where two compete.
        **identity: `stream_id`, `device_index` and `device_type` of a stream
            that exists, instead of the two above.

    Raises:
        RuntimeError: The device's index is out of range, the priority is above
            0, or there is no such stream.
        ValueError: It is not an openreg device.
    """

    def __new__(
        cls, device: Device = None, priority: int = 0, **identity: int
    ) -> Stream:
        _lazy_init()
        if identity:
            found = super().__new__(cls, **identity)
            _C._stream_priority(found.device_index, found.stream_id)
            return found
        index = _get_device_index(device, optional=True)
        return super().__new__(
            cls, torch.device("openreg", index), priority=priority
        )

    @property
    def priority(self) -> int:
        """-1 for a stream of high priority, else 0."""
        return _C._stream_priority(self.device_index, self.stream_id)

    # [/py-streams-stream]

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Returns the least and the greatest priority, `(0, -1)`."""
        return _C._stream_priority_range()


class ExternalStream(Stream):
    """A stream that other code made with the device's C API.

    Args:
        stream_ptr: The handle, an `orStream_t` as an integer. Who made the
            stream must keep it until nothing here uses it any more.
        device: Where the stream is; by default the current device.

    Raises:
        RuntimeError: The device has no such stream.
        ValueError: It is not an openreg device.
    """

    def __new__(cls, stream_ptr: int, device: Device = None) -> ExternalStream:
        _lazy_init()
        index = _get_device_index(device, optional=True)
        return _rebuild(cls, index, _C._external_stream(index, stream_ptr))


def Event(
    enable_timing: bool = False,
    blocking: bool = False,
    interprocess: bool = False,
) -> torch.Event:
    """A mark in a stream, which other streams and the host can wait for.

    It belongs to no device until it is recorded. It may be recorded again: who
    waits from then on waits for the new record. A function, because PyTorch's
    own methods take plain torch.Event objects only (torch 2.13).

    Args:
        enable_timing: Whether `elapsed_time` can use it.
        blocking: Accepted as in torch.cuda; the host always sleeps to wait.
        interprocess: Not supported.

    Raises:
        NotImplementedError: `interprocess` is true.
    """
    if interprocess:
        raise NotImplementedError(
            "An openreg event cannot be shared with another process. "
            "Synchronize before you send a tensor instead."
        )
    return torch.Event("openreg", enable_timing=enable_timing)


def _rebuild(cls: type[S], device: int, stream_id: int) -> S:
    """An object for a stream that is known to exist."""
    made = torch.Stream.__new__(
        cls,
        stream_id=stream_id,
        device_index=device,
        device_type=_DEVICE_TYPE,
    )
    assert isinstance(made, cls)
    return made


def _check_stream(stream: object) -> None:
    if not isinstance(stream, torch.Stream):
        raise TypeError(
            f"Expected a torch.Stream or None, but got: {stream!r}. A stream's "
            "number alone does not say which device it is of."
        )


# [py-streams-current] Each thread has a current stream on every device.
def current_stream(device: Device = None) -> Stream:
    """Returns this thread's current stream of `device`."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    return _rebuild(Stream, index, _C._current_stream(index))


def default_stream(device: Device = None) -> Stream:
    """Returns the stream of `device` that is current unless one says else."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    return _rebuild(Stream, index, _C._default_stream(index))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current, and its device too; None changes nothing.

    Prefer the context manager `torch.openreg.stream`, which also goes back.

    Raises:
        RuntimeError: There is no such stream.
        TypeError: It is not a stream.
        ValueError: It is not a stream of an openreg device.
    """
    if stream is None:
        return
    _check_stream(stream)
    _lazy_init()
    index = _get_device_index(stream.device)
    _C._set_stream(index, stream.stream_id)
    _C._set_device(index)


# [/py-streams-current]


# [py-streams-context] Makes a stream current for a `with` statement.
class StreamContext:
    """Makes a stream and its device current, and goes back at the end.

    One object may be used again, also inside itself.

    Args:
        stream: What to make current; None changes nothing.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        if stream is not None:
            _check_stream(stream)
        self.stream = stream
        self._previous: list[tuple[int, Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            before = _C._get_device(), current_stream(self.stream.device)
            set_stream(self.stream)
            self._previous.append(before)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            device, stream = self._previous.pop()
            set_stream(stream)
            _C._set_device(device)


# [/py-streams-context]


def stream(stream: torch.Stream | None) -> StreamContext:
    """Returns a context manager in which `stream` is current.

    Its device is current, too; both go back at the end, also after an error.
    """
    return StreamContext(stream)
