"""What the dispatcher sent to the device, and what the device says it ran."""

from __future__ import annotations

import io

import torch

from torch_openreg.openreg.testing import Record

# Kernels of the device that touch no element: they make room, or tell or
# change what is known of a tensor.
METADATA = (
    "aten::empty",
    "aten::resize_",
    "aten::set_",
    "aten::_lazy_clone",
    "aten::_has_compatible_shallow_copy_type",
)
# What the copy engine does knows nothing of operators.
OF_ENGINE = {"copy": "aten::_copy_from", "set": "aten::zero_"}


def does_work(operator: str, path: str) -> bool:
    """Whether a call is a kernel's: no view of a tensor, no room for one.

    What is default calls others, and these are in the list themselves. What
    falls back is done by the host, of which the device sees copies.
    """
    name, _, overload = operator.partition(".")
    packet = getattr(torch.ops, name.split("::")[0])
    packet = getattr(packet, name.split("::")[1])
    is_view = getattr(packet, overload or "default").is_view
    return (
        path in ("native", "alias")
        and not is_view
        and not name.startswith(METADATA)
    )


def dispatched(file: io.StringIO) -> dict[tuple[int, int], list[str]]:
    """Of what show_calls printed: kernels by device and stream."""
    found: dict[tuple[int, int], list[str]] = {}
    for line in file.getvalue().splitlines():
        operator, _, path, place, *stream = line.split()
        if place.startswith("openreg") and does_work(operator, path):
            key = int(place.split(":")[1]), int(stream[1])
            found.setdefault(key, []).append(operator)
    return found


def recorded(records: list[Record]) -> dict[tuple[int, int], list[str]]:
    """Of the device's records: kernels by device and stream, in order."""
    found: dict[tuple[int, int], list[str]] = {}
    for record in sorted(records, key=lambda record: record.time_ns):
        if record.phase == "start":
            name = OF_ENGINE.get(record.kind, record.name)
            key = record.device, record.stream
            found.setdefault(key, []).append(name)
    return found


def check_complete(records: list[Record]) -> None:
    """Each piece of work has its three records, and a stream does one."""
    works: dict[int, list[Record]] = {}
    for record in records:
        works.setdefault(record.work, []).append(record)
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for work in works.values():
        assert [record.phase for record in work] == ["launch", "start", "end"]
        assert len({x._replace(phase="", time_ns=0) for x in work}) == 1
        times = [record.time_ns for record in work]
        assert times == sorted(times)
        key = work[0].device, work[0].stream
        spans.setdefault(key, []).append((times[1], times[2]))
    for stream in spans.values():
        stream.sort()
        ends = [end for _, end in stream]
        starts = [start for start, _ in stream]
        assert all(map(int.__le__, ends, starts[1:]))
