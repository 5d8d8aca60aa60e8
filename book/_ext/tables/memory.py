"""The tables of book/chapters/memory.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import code, table


class AllocatorMethod(NamedTuple):
    name: str  # in PyTorch's header
    reached_by: str
    ours: str
    test: str  # file::function in backend/tests


IN_CPP = "test_pool.py::test_the_methods_that_only_cpp_calls"
PINNED = "test_host_allocator.py::"
ALLOCATOR_METHODS = [
    AllocatorMethod(
        "allocate",
        "every tensor; `torch.UntypedStorage(n, device=...)`",
        "A block of the pool, on the current device, for the current stream.",
        "test_allocator.py::test_allocate_gives_a_storage_memory_of_the_pool",
    ),
    AllocatorMethod(
        "raw_deleter",
        "C++ that wants an address alone",
        "The function that frees by address.",
        IN_CPP,
    ),
    AllocatorMethod(
        "is_simple_data_ptr",
        "`torch._lazy_clone()`, to know whether it may wait with the copy",
        "PyTorch's: yes, where the address is also the context.",
        "test_allocator.py::test_copy_data_parts_a_lazy_clone_from_its_source",
    ),
    AllocatorMethod(
        "copy_data",
        "`torch._lazy_clone()`, at the first write",
        "The device's own copy.",
        "test_allocator.py::test_copy_data_parts_a_lazy_clone_from_its_source",
    ),
    AllocatorMethod(
        "initialized",
        "`empty_cache()` and `memory_stats()`, before they do anything",
        "Whether there is a device.",
        "test_allocator.py::test_empty_cache_gives_memory_back",
    ),
    AllocatorMethod(
        "emptyCache",
        "`torch.accelerator.empty_cache()`",
        "Frees the segments without an active block, on all devices.",
        "test_allocator.py::"
        "test_empty_cache_waits_for_work_and_lets_other_threads_run",
    ),
    AllocatorMethod(
        "recordStream",
        "`Tensor.record_stream()`",
        "The block, once freed, waits for that stream.",
        "test_allocator.py::"
        "test_record_stream_keeps_a_block_until_that_stream_is_done",
    ),
    AllocatorMethod(
        "getDeviceStats",
        "`memory_stats()`, `memory_allocated()` ...",
        "A copy of the pool's counts.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "resetAccumulatedStats",
        "`reset_accumulated_memory_stats()`",
        "Sets what only grows back to 0.",
        "test_memory.py::test_what_only_grows_is_reset_to_zero",
    ),
    AllocatorMethod(
        "resetPeakStats",
        "`reset_peak_memory_stats()`",
        "Sets each peak to the current value.",
        "test_memory.py::test_peaks_are_reset_to_what_is_current",
    ),
    AllocatorMethod(
        "getMemoryInfo",
        "`get_memory_info()`",
        "What the device says: free and total bytes.",
        "test_allocator.py::test_get_memory_info_is_each_devices_own",
    ),
]
HOST_METHODS = [
    AllocatorMethod(
        "allocate",
        "`pin_memory=True`, `Tensor.pin_memory()`",
        "PyTorch's cache; new blocks from `orMallocHost`.",
        PINNED + "test_pinned_memory_is_the_devices_host_memory",
    ),
    AllocatorMethod(
        "is_simple_data_ptr",
        "C++ that wants to share a block",
        "PyTorch's: no, the context is the cache's.",
        IN_CPP,
    ),
    AllocatorMethod(
        "raw_deleter",
        "C++ that wants an address alone",
        "PyTorch's: none, so `raw_allocate` is refused.",
        IN_CPP,
    ),
    AllocatorMethod(
        "copy_data", "C++ that clones a block", "`memcpy`.", IN_CPP
    ),
    AllocatorMethod(
        "record_event",
        "a non-blocking copy, of our own `_copy_from`",
        "PyTorch's, with our events.",
        PINNED + "test_a_block_waits_for_the_copy_that_uses_it",
    ),
    AllocatorMethod(
        "empty_cache",
        "`torch.accelerator.empty_host_cache()`",
        "PyTorch's, with `orFreeHost`.",
        PINNED + "test_empty_host_cache_returns_what_is_free",
    ),
    AllocatorMethod(
        "get_stats",
        "`torch.openreg.host_memory_stats()`",
        "PyTorch's; times are ours.",
        PINNED + "test_statistics_follow_every_pinned_block",
    ),
    AllocatorMethod(
        "reset_accumulated_stats",
        "`torch.openreg.reset_accumulated_host_memory_stats()`",
        "PyTorch's.",
        PINNED + "test_statistics_follow_every_pinned_block",
    ),
    AllocatorMethod(
        "reset_peak_stats",
        "`torch.openreg.reset_peak_host_memory_stats()`",
        "PyTorch's.",
        PINNED + "test_statistics_follow_every_pinned_block",
    ),
    *(
        AllocatorMethod(
            f"{name}_pool", "graph capture, in C++", "PyTorch's.", IN_CPP
        )
        for name in ("begin_allocate_to", "end_allocate_to", "release")
    ),
]

# Of PyTorch's cache of pinned blocks, which a backend derives from.
FREED = PINNED + "test_empty_host_cache_returns_what_is_free"
REUSED = PINNED + "test_a_block_waits_for_the_copy_that_uses_it"
SIZES = PINNED + "test_sizes_above_a_threshold_are_not_rounded"
KEPT = PINNED + "test_blocks_above_a_size_are_not_cached"
CACHE_METHODS = [
    AllocatorMethod(
        "allocate",
        "the allocator",
        "PyTorch's, then what the cache has given up is freed.",
        PINNED + "test_a_freed_block_is_used_again",
    ),
    AllocatorMethod(
        "free",
        "the end of a block",
        "As `allocate`.",
        PINNED + "test_a_block_that_is_given_back_lets_other_threads_run",
    ),
    AllocatorMethod("record_event", "the allocator", "PyTorch's.", REUSED),
    AllocatorMethod("empty_cache", "the allocator", "As `allocate`.", FREED),
    AllocatorMethod(
        "pinned_use_background_threads",
        "the cache, for an option",
        "PyTorch's.",
        PINNED + "test_the_cache_can_be_emptied_before_any_use_and_"
        "served_by_a_thread",
    ),
    AllocatorMethod("copy_data", "the allocator", "`memcpy`.", IN_CPP),
    *(
        AllocatorMethod(name, "the cache", "PyTorch's.", REUSED)
        for name in (
            *("add_allocated_block", "get_free_block", "process_events"),
            "process_events_for_specific_size",
        )
    ),
    AllocatorMethod(
        "pinned_max_round_threshold", "the cache", "PyTorch's.", SIZES
    ),
    AllocatorMethod("pinned_max_cached_size", "the cache", "PyTorch's.", KEPT),
    AllocatorMethod(
        "allocate_host_memory", "the cache", "`orMallocHost`.", FREED
    ),
    AllocatorMethod(
        "free_block", "the cache, under its locks", "Gives it up.", FREED
    ),
    AllocatorMethod(
        "record_stream", "the end of a block", "An event of ours.", REUSED
    ),
    AllocatorMethod(
        "query_event", "the cache", "Whether the event is over.", REUSED
    ),
    AllocatorMethod("get_current_stream", "the cache", "The device's.", IN_CPP),
    AllocatorMethod(
        "stream_is_capturing", "the cache", "No: nothing captures.", IN_CPP
    ),
]


def method_table(methods: list[AllocatorMethod]) -> str:
    return table(
        ("Method", "Reached by", "Here", "Test"),
        (
            (f"`{m.name}`", m.reached_by, m.ours, f"`{m.test}`{{.said}}")
            for m in methods
        ),
    )


def allocator_methods() -> str:
    """What PyTorch asks of a device's allocator, and by which call."""
    return method_table(ALLOCATOR_METHODS)


def host_allocator_methods() -> str:
    """What PyTorch asks of the allocator of pinned memory."""
    return method_table(HOST_METHODS)


class Option(NamedTuple):
    name: str
    effect: str
    test: str


OPTIONS = [
    Option(
        "max_split_size_mb",
        "Larger blocks are never split, and kept for requests of their size.",
        "test_memory.py::test_blocks_above_a_size_are_never_split",
    ),
    Option(
        "max_non_split_rounding_mb",
        "How much larger than the request such a block may be.",
        "test_memory.py::test_blocks_above_a_size_are_never_split",
    ),
    Option(
        "large_segment_size_mb",
        "The size of a segment for blocks between 1 MiB and half of it.",
        "test_memory.py::test_large_segments_can_have_another_size",
    ),
    Option(
        "roundup_power2_divisions",
        "Sizes are rounded to so many steps between two powers of two.",
        "test_memory.py::test_sizes_can_be_rounded_to_parts_of_a_power_of_two",
    ),
    Option(
        "garbage_collection_threshold",
        "Above this part of the limit, what was unused for longest is freed.",
        "test_memory.py::"
        "test_above_a_threshold_what_was_unused_for_longest_goes_first",
    ),
    Option(
        "expandable_segments",
        "None, and a warning says so.",
        "test_memory.py::test_a_full_device_raises_with_numbers_and_goes_on",
    ),
    Option(
        "pinned_use_background_threads",
        "A thread looks after the events of pinned blocks.",
        PINNED + "test_the_cache_can_be_emptied_before_any_use_and_"
        "served_by_a_thread",
    ),
    Option(
        "pinned_max_round_threshold_mb",
        "Larger pinned blocks are not rounded to a power of two.",
        PINNED + "test_sizes_above_a_threshold_are_not_rounded",
    ),
    Option(
        "pinned_max_cached_size_mb",
        "Larger pinned blocks are not kept.",
        PINNED + "test_blocks_above_a_size_are_not_cached",
    ),
]


def allocator_options() -> str:
    """What PYTORCH_ALLOC_CONF can set for any accelerator."""
    return table(
        ("Option", "Effect here", "Test"),
        ((f"`{o.name}`", o.effect, f"`{o.test}`{{.said}}") for o in OPTIONS),
    )


class DeviceStat(NamedTuple):
    keys: tuple[str, ...]  # in torch.accelerator.memory_stats
    meaning: str


def stat_array(field: str, meaning: str) -> DeviceStat:
    return DeviceStat((f"{field}.all.current",), meaning)


DEVICE_STATS = {
    "allocation": stat_array("allocation", "Blocks that the program holds."),
    "allocated_bytes": stat_array(
        "allocated_bytes", "Their bytes, rounded: `memory_allocated()`."
    ),
    "requested_bytes": stat_array(
        "requested_bytes", "The bytes that were asked for, before rounding."
    ),
    "active": stat_array(
        "active", "Blocks that the program or a stream still uses."
    ),
    "active_bytes": stat_array("active_bytes", "Their bytes."),
    "segment": stat_array("segment", "Segments that the device gave."),
    "reserved_bytes": stat_array(
        "reserved_bytes", "Their bytes: `memory_reserved()`."
    ),
    "inactive_split": stat_array(
        "inactive_split", "Free blocks in segments that are partly in use."
    ),
    "inactive_split_bytes": stat_array(
        "inactive_split_bytes", "Their bytes: what fragmentation costs."
    ),
    "oversize_allocations": DeviceStat(
        ("oversize_allocations.current",),
        "Blocks that are too large to be split.",
    ),
    "oversize_segments": DeviceStat(
        ("oversize_segments.current",), "Segments of that size."
    ),
    "num_alloc_retries": DeviceStat(
        ("num_alloc_retries",), "The device was full, and the cache emptied."
    ),
    "num_ooms": DeviceStat(("num_ooms",), "And even that did not help."),
    "num_sync_all_streams": DeviceStat(
        ("num_sync_all_streams",), "Waits for the streams of freed blocks."
    ),
    "num_device_alloc": DeviceStat(
        ("num_device_alloc",), "Segments asked of the device, so far."
    ),
    "num_device_free": DeviceStat(
        ("num_device_free",), "Segments given back to it."
    ),
    "max_split_size": DeviceStat(
        ("max_split_size",), "The setting, in bytes; no limit at first."
    ),
    "reserved_bytes_by_private_pools": DeviceStat(
        (), "For private pools, of which openreg has none."
    ),
    "num_oom_rejections": DeviceStat(
        (), "For a policy that only PyTorch's own pools have."
    ),
}


def device_stats() -> str:
    """The fields of DeviceStats, and where a program finds them."""
    return table(
        ("Field", "Key", "Meaning"),
        (
            (f"`{field}`", code(stat.keys) or "none", stat.meaning)
            for field, stat in DEVICE_STATS.items()
        ),
    )
