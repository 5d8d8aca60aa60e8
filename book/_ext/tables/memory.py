"""The tables of book/chapters/memory.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


class AllocatorMethod(NamedTuple):
    name: str  # in c10/core/CachingDeviceAllocator.h
    reached_by: str
    ours: str
    test: str


ALLOCATOR_METHODS = [
    AllocatorMethod(
        "allocate",
        "`torch.UntypedStorage(n, device=...)`",
        "A block of the pool, on the current device.",
        "test_allocator.py::test_a_storage_comes_from_the_pool",
    ),
    AllocatorMethod(
        "initialized",
        "`empty_cache()`, before it does anything",
        "Whether there is a device.",
        "test_memory.py::test_emptying_the_cache_gives_memory_back",
    ),
    AllocatorMethod(
        "emptyCache",
        "`empty_cache()`",
        "Frees the segments without a live block, on all devices.",
        "test_memory.py::test_emptying_the_cache_gives_memory_back",
    ),
    AllocatorMethod(
        "recordStream",
        "`Tensor.record_stream()`",
        "Nothing: there is one stream a device.",
        "test_allocator.py::test_record_stream_is_accepted",
    ),
    AllocatorMethod(
        "getDeviceStats",
        "`memory_stats()`, `memory_allocated()` ...",
        "A copy of the pool's counters.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "resetAccumulatedStats",
        "`reset_accumulated_memory_stats()`",
        "Sets what only grows back to 0.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "resetPeakStats",
        "`reset_peak_memory_stats()`",
        "Sets each peak to the current value.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "getMemoryInfo",
        "`get_memory_info()`",
        "What the device says: free and total bytes.",
        "test_allocator.py::test_memory_info_is_each_devices_own",
    ),
]


def allocator_methods() -> str:
    """What PyTorch asks of a device's allocator, and by which call."""
    return table(
        ("Method", "Reached by", "Here", "Test"),
        (
            (f"`{m.name}`", m.reached_by, m.ours, f"`{m.test}`")
            for m in ALLOCATOR_METHODS
        ),
    )
