"""What collectives cost beside Gloo by itself, and how a training step scales.

`nox -s bench` asks. One group has both devices, which take turns, so what
disturbs one disturbs both, and the median of each counts. Each sample begins
with calls that are not timed: connections that have rested are slow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import _ranks

BOTH = "cpu", "openreg"
SIZES = {
    "1 KiB": 1 << 10,
    "64 KiB": 1 << 16,
    "1 MiB": 1 << 20,
    "64 MiB": 1 << 26,
}
AT_MOST = 1.10
Pair = tuple[float, float]


def take_turns(call: Callable[[str], object], times: int, rounds: int) -> Pair:
    """Microseconds of a call on each device."""
    found: dict[str, list[float]] = {device: [] for device in BOTH}
    for _ in range(rounds):
        for device, taken in found.items():
            call(device)
            torch.accelerator.synchronize()
            begun = time.perf_counter()
            for _ in range(times):
                call(device)
            torch.accelerator.synchronize()
            taken.append((time.perf_counter() - begun) / times * 1e6)
    cpu, ours = (median(taken) for taken in found.values())
    return round(cpu, 1), round(ours, 1)


# Of two tensors of a size, and one that is a rank's part of it.
CALLS: dict[str, Callable[..., object]] = {
    "all_reduce": lambda x, y, part: dist.all_reduce(x),
    "all_to_all_single": lambda x, y, part: dist.all_to_all_single(y, x),
    "reduce_scatter_tensor": lambda x, y, part: dist.reduce_scatter_tensor(
        part, x
    ),
}


def calling(what: str, size: int) -> Callable[[str], object]:
    whole = size // 4
    counts = whole, whole, whole // dist.get_world_size()
    tensors = {
        device: [torch.zeros(count).to(device) for count in counts]
        for device in BOTH
    }
    return lambda device: CALLS[what](*tensors[device])


def collectives() -> dict[str, Pair]:
    return {
        f"{what} of {name}": take_turns(
            calling(what, size),
            times=max(1, min(8, (8 << 20) // size)),
            rounds=max(5, min(20, (256 << 20) // size)),
        )
        for what in CALLS
        for name, size in SIZES.items()
    }


def steps() -> dict[str, Pair]:
    """A step of DDP, in which each process has a batch of its own."""

    def step(device: str) -> None:
        model, optimizer, batch = made[device]
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    made: dict[str, tuple[Any, Any, torch.Tensor]] = {}
    for device in BOTH:
        layers = (nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
        model = nn.parallel.DistributedDataParallel(
            nn.Sequential(*layers).to(device)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        made[device] = model, optimizer, torch.rand(64, 256).to(device)
    return {"step": take_turns(step, 5, 15)}


def in_ranks(what: str, size: int) -> dict[str, Pair]:
    code = f"""
    import json
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import bench_distributed
    begin(BOTH)
    found = bench_distributed.{what}()
    if rank == 0:
        print("found:", json.dumps(found))
    """
    printed = _ranks.run(code, size, OPENREG_DEVICE_COUNT=str(size))
    found: dict[str, Pair] = json.loads(printed.rpartition("found:")[2])
    return found


def measure() -> dict[str, Pair]:
    """Each row's times, of Gloo or DDP on the CPU and on the device."""
    return {
        f"{name}, {size} processes: CPU, device": pair
        for what, sizes in (("collectives", (2, 4)), ("steps", (1, 2, 4)))
        for size in sizes
        for name, pair in in_ranks(what, size).items()
    }


def show(found: dict[str, Pair]) -> None:
    head = "collectives, and a step of DDP, us"
    print(f"\n{head:60}{'CPU':>10}{'device':>13}  at most {AT_MOST:.2f}")
    for name, (cpu, device) in found.items():
        ratio = device / cpu
        print(f"{name:60}{cpu:10.1f}{device:13.1f} ({ratio:6.2f})")


if __name__ == "__main__":
    show(measure())
