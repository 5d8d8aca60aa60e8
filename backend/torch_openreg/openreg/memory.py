"""Memory: what the pool holds and counts, and what it may take.

Where `torch.accelerator` has the same function, both give the same numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch.types import Device

from torch_openreg import _C
from torch_openreg.openreg._lazy import _lazy_init, device_count, is_available
from torch_openreg.openreg._utils import _get_device_index

__all__ = [
    "empty_cache",
    "empty_host_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def empty_cache() -> None:
    """Gives the devices back what the pools keep and no tensor uses.

    Waits for the devices' work first.
    """
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Frees the pinned memory that is kept and that nothing uses."""
    torch.accelerator.empty_host_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Returns the free and the total bytes of `device`, as the device says.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`; by default the
            current one.

    Raises:
        RuntimeError: The index is out of range.
        ValueError: It is not an openreg device.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    return torch._C._accelerator_getMemoryInfo(index)


def _flatten(nested: dict[str, Any], prefix: str = "") -> OrderedDict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`, sorted."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return OrderedDict(sorted(flat.items()))


# All counts of a device, nested or with dots in the names.
def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Returns what the pool of `device` counts; empty without any device.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`; by default the
            current one.

    Raises:
        RuntimeError: The index is out of range.
        ValueError: It is not an openreg device.
    """
    if not is_available():
        return {}
    index = _get_device_index(device, optional=True)
    return torch._C._accelerator_getDeviceStats(index)


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """As `memory_stats_as_nested_dict`, with dots in the names.

    One of them is `"allocated_bytes.all.peak"`.
    """
    return _flatten(memory_stats_as_nested_dict(device))


def memory_allocated(device: Device = None) -> int:
    """Returns the bytes that tensors hold on `device`."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Returns the most bytes that tensors held on `device`."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Returns the bytes that the pool has of `device`, in use or not."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Returns the most bytes that the pool had of `device`."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Sets each peak of `device` to the current value."""
    index = _get_device_index(device, optional=True)
    torch._C._accelerator_resetPeakStats(index)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Sets to 0 what only ever grows in the counts of `device`."""
    index = _get_device_index(device, optional=True)
    torch._C._accelerator_resetAccumulatedStats(index)


# [py-memory-fraction] A process can be kept from taking the whole device.
def set_per_process_memory_fraction(
    fraction: float, device: Device = None
) -> None:
    """Limits what the pool may take of `device`.

    What it has taken already stays. Beyond the limit, an allocation raises
    `torch.OutOfMemoryError`.

    Args:
        fraction: Of the device's capacity, from 0 to 1.
        device: An index, `"openreg:1"` or a `torch.device`; by default the
            current one.

    Raises:
        TypeError: `fraction` is not a float.
        ValueError: It is not from 0 to 1, or `device` is not an openreg device.
        RuntimeError: The index is out of range.
    """
    if not isinstance(fraction, float):
        raise TypeError(
            f"Expected a float as fraction, but got {type(fraction).__name__}"
        )
    _lazy_init()
    _C._set_memory_fraction(_get_device_index(device, optional=True), fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Returns the part of `device` that the pool may take, at first 1.0."""
    _lazy_init()
    return _C._memory_fraction(_get_device_index(device, optional=True))


# [/py-memory-fraction]


def memory_snapshot(device: Device = None) -> list[dict[str, Any]]:
    """Returns every segment of the pool and its blocks, by address.

    The dictionaries have the names that PyTorch's memory tools know. A stream
    is its handle, or 0 where a graph's private pool, `segment_pool_id`, owns
    the segment; `frames` is empty, as stacks are not recorded.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`; by default all
            devices.

    Raises:
        RuntimeError: The index is out of range.
        ValueError: It is not an openreg device.
    """
    indices = [*range(device_count())]
    if device is not None:
        indices = [_get_device_index(device, optional=True)]
    return [s for index in indices for s in _C._memory_snapshot(index)]


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 10240:
            return f"{count} {unit}"
        count = round(count / 1024)
    return f"{count} GiB"


# The counts that one looks at, as a table.
def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Returns a table of the counts of `device`, to be printed.

    Args:
        device: An index, `"openreg:1"` or a `torch.device`; by default the
            current one.
        abbreviated: Whether to leave out the two lines for small and large
            blocks.
    """
    index = _get_device_index(device, optional=True)
    stats = memory_stats_as_nested_dict(index)
    columns = ("current", "peak", "allocated", "freed")
    lines = [f"Memory of openreg:{index}".ljust(32) + _row(columns)]
    for measure in (
        *("allocated_bytes", "requested_bytes", "active_bytes"),
        *("reserved_bytes", "inactive_split_bytes"),
        *("allocation", "active", "segment", "inactive_split"),
    ):
        show = _bytes if measure.endswith("bytes") else str
        for kind, counts in stats[measure].items():
            if kind == "all" or not abbreviated:
                name = measure if kind == "all" else f"  {kind}"
                values = (show(counts[column]) for column in columns)
                lines.append(name.ljust(32) + _row(values))
    for event in ("num_alloc_retries", "num_ooms", "num_sync_all_streams"):
        lines.append(event.ljust(32) + _row([stats[event]]))
    return "\n".join(lines) + "\n"


def _row(cells: Any) -> str:
    return "".join(f"{cell:>12}" for cell in cells)


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Returns what is counted of pinned memory; times are in microseconds."""
    return _C._host_memory_stats()


def host_memory_stats() -> OrderedDict[str, Any]:
    """As `host_memory_stats_as_nested_dict`, with dots in the names."""
    return _flatten(host_memory_stats_as_nested_dict())


def reset_peak_host_memory_stats() -> None:
    """Sets each peak of pinned memory to the current value."""
    _C._reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Sets to 0 what only ever grows in the counts of pinned memory."""
    _C._reset_accumulated_host_memory_stats()
