"""The caching pool: reuse, statistics, a full device and its recovery."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

MIB = 1 << 20
KIB = 1 << 10


@pytest.fixture(autouse=True)
def empty_pool():
    gc.collect()
    torch.accelerator.empty_cache()


def empty(size: int, device: str = "openreg") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def allocated(device: int = 0) -> int:
    return torch.accelerator.memory_allocated(device)


def test_a_freed_block_is_handed_out_again() -> None:
    x = torch.empty(1000, device="openreg")
    address = x.data_ptr()
    del x
    assert torch.empty(1000, device="openreg").data_ptr() == address


def test_a_freed_block_is_not_handed_out_while_a_view_lives() -> None:
    x = torch.empty(1000, device="openreg")
    address, view = x.data_ptr(), x[:1]
    del x
    assert torch.empty(1000, device="openreg").data_ptr() != address
    del view


@pytest.mark.parametrize(
    ("requested", "block"),
    [
        (1, 512),
        (512, 512),
        (513, 1024),
        (4097, 4608),
        (MIB, MIB),
        (MIB + 1, MIB + 512),
        (15 * MIB + 1, 15 * MIB + 512),
    ],
)
def test_sizes_are_rounded_up_to_512_bytes(requested, block) -> None:
    before = allocated()
    x = empty(requested)
    assert allocated() - before == block
    del x
    assert allocated() == before


def test_an_empty_tensor_takes_no_memory() -> None:
    before = allocated()
    assert torch.empty(0, device="openreg").data_ptr() == 0
    assert allocated() == before


def test_statistics_follow_every_block() -> None:
    torch.accelerator.reset_peak_memory_stats()
    start = torch.accelerator.memory_stats()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="openreg")
    y = torch.empty(100, dtype=torch.uint8, device="openreg")
    during = torch.accelerator.memory_stats()

    def grew(key: str) -> int:
        return during[key] - start.get(key, 0)

    assert grew("allocation.all.current") == 2
    assert grew("allocation.small_pool.current") == 1
    assert grew("allocation.large_pool.current") == 1
    assert grew("requested_bytes.all.current") == 3 * MIB + 100
    assert grew("allocated_bytes.all.current") == 3 * MIB + 512
    assert torch.accelerator.memory_reserved() >= allocated()
    del x, y
    assert (
        torch.accelerator.memory_stats()["allocation.all.current"]
        == start["allocation.all.current"]
    )
    peak = torch.accelerator.max_memory_allocated()
    assert peak >= 3 * MIB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == allocated()
    torch.accelerator.reset_accumulated_memory_stats()
    stats = torch.accelerator.memory_stats()
    assert stats["allocation.all.allocated"] == 0
    assert stats["num_ooms"] == 0


def test_statistics_of_a_device_that_is_not_there_are_refused() -> None:
    with pytest.raises(RuntimeError, match="device index is out of range"):
        torch.accelerator.memory_allocated(7)


def test_emptying_the_cache_gives_memory_back() -> None:
    x = torch.empty(8 * MIB, device="openreg")
    keep = torch.empty(100, device="openreg")
    del x
    assert torch.accelerator.memory_reserved() >= 32 * MIB
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < 32 * MIB
    keep.fill_(3)
    assert keep.sum().item() == 300


def test_each_device_has_its_own_pool() -> None:
    before = allocated(0), allocated(1)
    x = torch.empty(MIB, dtype=torch.uint8, device="openreg:1")
    assert allocated(0) == before[0]
    assert allocated(1) == before[1] + MIB
    del x


def test_threads_get_blocks_of_their_own() -> None:
    def work(seed: int) -> bool:
        sizes = torch.randint(
            1, 50_000, (60,), generator=torch.Generator().manual_seed(seed)
        )
        live = []
        for step, size in enumerate(sizes.tolist()):
            value = seed * 1000 + step
            live.append((value, torch.full((size,), value, device="openreg")))
            if step % 3 == 2:
                kept, tensor = live.pop(seed % len(live))
                if not bool((tensor == kept).all()):
                    return False
        return all(bool((tensor == value).all()) for value, tensor in live)

    before = allocated()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    gc.collect()
    assert allocated() == before


def on_a_small_device(program: str) -> str:
    """What a program prints where a device has 64 MiB; it must succeed."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"OPENREG_DEVICE_MEMORY": "64M"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


FULL_DEVICE = """
import torch
MIB = 1 << 20
kept = torch.full((20 * MIB,), 7, dtype=torch.uint8, device="openreg")
cached = torch.empty(30 * MIB, dtype=torch.uint8, device="openreg")
del cached
# 20 of 64 MiB are in use and 30 only cached: 40 more fit if the cache goes.
grown = torch.empty(40 * MIB, dtype=torch.uint8, device="openreg")
assert torch.accelerator.memory_stats()["num_alloc_retries"] == 1
try:
    torch.empty(10 * MIB, dtype=torch.uint8, device="openreg")
except torch.OutOfMemoryError as error:
    print(error)
assert torch.accelerator.memory_stats()["num_ooms"] == 1
assert bool((kept[::4096] == 7).all())
small = torch.ones(1000, device="openreg")
try:
    small.resize_(64 * MIB)
except torch.OutOfMemoryError:
    assert small.shape == (1000,)
assert small.sum().item() == 1000
other = torch.empty(50 * MIB, dtype=torch.uint8, device="openreg:1")
del grown
assert torch.empty(10 * MIB, dtype=torch.uint8, device="openreg").numel()
"""


def test_a_full_device_raises_with_numbers_and_recovers() -> None:
    printed = on_a_small_device(FULL_DEVICE)
    assert f"Tried to allocate {10 * MIB} bytes on device 0" in printed
    assert f"a capacity of {64 * MIB} bytes" in printed
    assert f"allocated {60 * MIB} and reserved" in printed


FORK = """
import os
import torch
MIB = 1 << 20

def in_child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def use_the_device():
    for _ in range(10):  # more than fits, were it not given back
        torch.empty(40 * MIB, dtype=torch.uint8, device="openreg")

def touch_what_the_parent_uses():
    global kept
    try:
        kept + 1
    except RuntimeError as error:
        print(error, flush=True)
    del kept  # quietly

in_child(use_the_device)
kept = torch.ones(10, device="openreg")
in_child(touch_what_the_parent_uses)
assert kept.sum().item() == 10
"""


def test_a_forked_child_uses_the_pool_unless_its_parent_does() -> None:
    printed = on_a_small_device(FORK)
    assert "fork" in printed
    assert "spawn" in printed


def test_the_profiler_sees_allocations() -> None:
    with torch.profiler.profile(profile_memory=True) as profile:
        x = torch.empty(1000, device="openreg")
        del x
    memory = [e for e in profile.events() if e.name == "[memory]"]
    assert memory
