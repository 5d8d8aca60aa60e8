"""The tables of book/chapters/accelerator.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


class AcceleratorName(NamedTuple):
    answered_by: str  # what of the backend
    test: str  # file::function in backend/tests; uses the name


MODULE = "the device module: "
GUARD = "the guard: "
POOL = "the device's allocator: "
STATS = POOL + "`getDeviceStats`"

ACCELERATOR_NAMES = {
    "current_accelerator": AcceleratorName(
        "the name of the key, once `rename_privateuse1_backend` has run; "
        "with `check_available=True` also the device module, `is_available`",
        "test_accelerator.py::test_the_accelerator_is_openreg",
    ),
    "is_available": AcceleratorName(
        MODULE + "`is_available`",
        "test_accelerator.py::test_without_a_device_nothing_crashes",
    ),
    "device_count": AcceleratorName(
        MODULE + "`device_count`",
        "test_accelerator.py::test_without_a_device_nothing_crashes",
    ),
    "current_device_index": AcceleratorName(
        GUARD + "`getDevice`",
        "test_guard.py::test_the_accelerator_api_goes_through_the_guard",
    ),
    "set_device_index": AcceleratorName(
        GUARD + "`setDevice`",
        "test_guard.py::test_the_accelerator_api_goes_through_the_guard",
    ),
    "device_index": AcceleratorName(
        GUARD + "`exchangeDevice`, then `uncheckedSetDevice`",
        "test_accelerator.py::test_device_index_goes_back_after_an_exception",
    ),
    "current_device_idx": AcceleratorName(
        "as `current_device_index`, deprecated",
        "test_accelerator.py::test_the_old_names_warn_and_work",
    ),
    "set_device_idx": AcceleratorName(
        "as `set_device_index`, deprecated",
        "test_accelerator.py::test_the_old_names_warn_and_work",
    ),
    "current_stream": AcceleratorName(
        GUARD + "`getStream`",
        "test_accelerator.py::test_a_stream_is_set_with_its_device",
    ),
    "set_stream": AcceleratorName(
        GUARD + "`exchangeStream` and `setDevice`",
        "test_accelerator.py::test_a_stream_is_set_with_its_device",
    ),
    "synchronize": AcceleratorName(
        GUARD + "`synchronizeDevice`",
        "test_accelerator.py::test_synchronize_waits_for_the_device_named",
    ),
    "get_device_capability": AcceleratorName(
        GUARD + "`getDeviceCapability`; asked once a device",
        "test_guard.py::test_capability_lists_the_dtypes_that_can_be_copied",
    ),
    "empty_cache": AcceleratorName(
        POOL + "`initialized`, `emptyCache`",
        "test_accelerator.py::test_the_cache_can_be_emptied",
    ),
    "empty_host_cache": AcceleratorName(
        "the allocator of pinned memory: `empty_cache`",
        "test_accelerator.py::test_the_host_cache_can_be_emptied",
    ),
    "get_memory_info": AcceleratorName(
        POOL + "`getMemoryInfo`",
        "test_accelerator.py::test_memory_is_counted_for_each_device",
    ),
    "memory_stats": AcceleratorName(
        STATS, "test_accelerator.py::test_memory_is_counted_for_each_device"
    ),
    "memory_allocated": AcceleratorName(
        STATS, "test_accelerator.py::test_memory_is_counted_for_each_device"
    ),
    "max_memory_allocated": AcceleratorName(
        STATS, "test_accelerator.py::test_memory_is_counted_for_each_device"
    ),
    "memory_reserved": AcceleratorName(
        STATS, "test_accelerator.py::test_memory_is_counted_for_each_device"
    ),
    "max_memory_reserved": AcceleratorName(
        STATS, "test_accelerator.py::test_memory_is_counted_for_each_device"
    ),
    "reset_accumulated_memory_stats": AcceleratorName(
        POOL + "`resetAccumulatedStats`",
        "test_accelerator.py::test_memory_is_counted_for_each_device",
    ),
    "reset_peak_memory_stats": AcceleratorName(
        POOL + "`resetPeakStats`",
        "test_accelerator.py::test_memory_is_counted_for_each_device",
    ),
    "Graph": AcceleratorName(
        "a class in `at::GraphImplRegistry`, of which there is none yet",
        "test_accelerator.py::test_graphs_are_refused",
    ),
}


def accelerator_names() -> str:
    """Every public name of torch.accelerator, and who answers it here."""
    from torch import accelerator

    order = list(ACCELERATOR_NAMES)
    return table(
        ("`torch.accelerator`", "Answered by", "Test"),
        (
            (
                f"`{name}`",
                ACCELERATOR_NAMES[name].answered_by,
                f"`{ACCELERATOR_NAMES[name].test}`{{.said}}",
            )
            for name in sorted(accelerator.__all__, key=order.index)
        ),
    )
