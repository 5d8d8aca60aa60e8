"""Ranges and marks for torch.profiler, by the names of torch.cuda.nvtx.

NVIDIA's go to a profiler of theirs, which this device does not have. Therefore
these are ranges of `torch.profiler.record_function`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import record_function

__all__ = ["mark", "range", "range_pop", "range_push"]


class _Thread(threading.local):
    """What a thread has begun and not ended."""

    def __init__(self) -> None:
        self.ranges: list[record_function] = []


_thread = _Thread()


# [py-profiler-range] Ranges without a `with` block; each thread has its own.
def range_push(message: str) -> int:
    """Begins a range inside those that this thread is in; returns its depth."""
    _thread.ranges.append(record_function(message))
    _thread.ranges[-1].__enter__()
    return len(_thread.ranges) - 1


def range_pop() -> int:
    """Ends the range that this thread began last; returns its depth."""
    if not _thread.ranges:
        raise RuntimeError(
            "range_pop() on a thread that is in no range. Call range_push() "
            "before, on the same thread."
        )
    _thread.ranges.pop().__exit__(None, None, None)
    return len(_thread.ranges)


# [/py-profiler-range]


@contextmanager
def range(message: str, *args: object, **kwargs: object) -> Iterator[None]:
    """A range around a block or a function, named `message.format(...)`."""
    with record_function(message.format(*args, **kwargs)):
        yield


def mark(message: str) -> None:
    """A range that ends as it begins."""
    with record_function(message):
        pass
