"""The caching pool: reuse, statistics, a full device and its recovery."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
import torch

import _device
from _fresh import prints
from torch_openreg.openreg.testing import Gate

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


def stats(device: int = 0) -> dict[str, int]:
    return torch.accelerator.memory_stats(device)


@pytest.mark.proves(
    "checklist.DeviceAllocator", "memory.allocator.getDeviceStats"
)
def test_statistics_follow_every_block() -> None:
    start = stats()
    x = empty(3 * MIB)
    y = empty(100)
    during = stats()

    def grew(key: str) -> int:
        return during[key] - start[key]

    assert grew("allocation.all.current") == 2
    assert grew("allocation.small_pool.current") == 1
    assert grew("allocation.large_pool.current") == 1
    assert grew("active.all.allocated") == 2
    assert grew("requested_bytes.all.current") == 3 * MIB + 100
    assert grew("allocated_bytes.all.current") == 3 * MIB + 512
    assert grew("active_bytes.large_pool.current") == 3 * MIB
    assert torch.accelerator.memory_reserved() >= allocated()
    del x, y
    after = stats()
    for key in ("allocation", "active", "allocated_bytes", "requested_bytes"):
        assert after[f"{key}.all.current"] == start[f"{key}.all.current"]
    assert after["allocation.all.freed"] == start["allocation.all.freed"] + 2
    assert after["active.all.freed"] == start["active.all.freed"] + 2


def test_statistics_count_segments_and_what_is_idle_in_them() -> None:
    start = stats(1)
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="openreg:1")
    during = stats(1)

    def grew(key: str) -> int:
        return during[key] - start[key]

    assert grew("segment.large_pool.current") == 1
    assert grew("segment.large_pool.allocated") == 1
    assert grew("num_device_alloc") == 1
    assert grew("reserved_bytes.large_pool.current") == 20 * MIB
    assert grew("inactive_split.large_pool.current") == 1
    assert grew("inactive_split_bytes.all.current") == 17 * MIB
    del x
    torch.accelerator.empty_cache()
    after = stats(1)
    assert (
        after["segment.large_pool.current"]
        == start["segment.large_pool.current"]
    )
    assert after["num_device_free"] == start["num_device_free"] + 1
    assert (
        after["inactive_split_bytes.all.current"]
        == start["inactive_split_bytes.all.current"]
    )


@pytest.mark.proves("memory.allocator.resetPeakStats")
def test_peaks_are_reset_to_what_is_current() -> None:
    torch.accelerator.reset_peak_memory_stats()
    before = allocated()
    x = empty(3 * MIB)
    y = empty(5 * MIB)
    reserved = torch.accelerator.memory_reserved()
    del x, y
    assert torch.accelerator.max_memory_allocated() == before + 8 * MIB
    assert stats()["active_bytes.all.peak"] == before + 8 * MIB
    torch.accelerator.empty_cache()
    assert torch.accelerator.max_memory_reserved() == reserved
    torch.accelerator.reset_peak_memory_stats()
    for key in ("allocated_bytes", "active_bytes", "reserved_bytes", "active"):
        now = stats()
        assert now[f"{key}.all.peak"] == now[f"{key}.all.current"]
        assert now[f"{key}.large_pool.peak"] == now[f"{key}.large_pool.current"]


@pytest.mark.proves("memory.allocator.resetAccumulatedStats")
def test_what_only_grows_is_reset_to_zero() -> None:
    x = empty(3 * MIB)
    current = stats()["allocation.all.current"]
    torch.accelerator.reset_accumulated_memory_stats()
    after = stats()
    assert after["allocation.all.current"] == current
    for key in ("allocation", "active", "segment", "inactive_split_bytes"):
        assert after[f"{key}.all.allocated"] == 0
        assert after[f"{key}.all.freed"] == 0
    assert after["num_device_alloc"] == 0
    assert after["num_ooms"] == 0
    del x
    assert stats()["allocation.all.freed"] == 1
    assert stats()["active.all.freed"] == 1


def test_statistics_of_a_device_that_is_not_there_are_refused() -> None:
    with pytest.raises(RuntimeError, match="device index is out of range"):
        torch.accelerator.memory_allocated(7)


def test_a_large_free_block_is_split_and_joined_again() -> None:
    x = empty(15 * MIB)  # a segment of its own, 16 MiB long
    address = x.data_ptr()
    del x
    parts = [empty(5 * MIB) for _ in range(3)]
    assert [p.data_ptr() for p in parts] == [
        address + i * 5 * MIB for i in range(3)
    ]
    del parts
    assert empty(15 * MIB).data_ptr() == address


def test_only_neighbours_are_joined() -> None:
    x = empty(15 * MIB)
    address = x.data_ptr()
    del x
    first, middle, last = (empty(5 * MIB) for _ in range(3))
    del first, last
    other = empty(10 * MIB)
    assert not address <= other.data_ptr() < address + 16 * MIB
    middle.fill_(7)
    del other
    assert bool((middle == 7).all())


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    torch.accelerator.empty_cache()
    large, small = empty(30 * MIB), empty(14 * MIB)
    address = small.data_ptr()
    del large, small
    assert empty(12 * MIB).data_ptr() == address


def test_small_and_large_blocks_do_not_share_a_segment() -> None:
    x = empty(15 * MIB)
    begin = x.data_ptr()
    del x
    assert not begin <= empty(100).data_ptr() < begin + 16 * MIB


def test_each_device_has_its_own_pool() -> None:
    before = allocated(0), allocated(1)
    x = torch.empty(MIB, dtype=torch.uint8, device="openreg:1")
    assert allocated(0) == before[0]
    assert allocated(1) == before[1] + MIB
    del x


def test_pools_of_other_streams_are_not_touched() -> None:
    side = torch.openreg.Stream()
    with side:
        x = empty(MIB)
        address = x.data_ptr()
        del x
        assert empty(MIB).data_ptr() == address
    assert empty(MIB).data_ptr() != address


def test_threads_get_blocks_of_their_own() -> None:
    """Hundreds of them in one call, which does not hold Python's lock."""

    def work(seed: int) -> bool:
        ones = [torch.ones(4, device="openreg") for _ in range(1000)]
        for _ in range(5):
            sums = torch._foreach_add(ones, seed)
            if not bool((torch.stack(sums) == 1 + seed).all()):
                return False
        return True

    before = allocated()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    gc.collect()
    assert allocated() == before


@pytest.fixture
def limit() -> Iterator[int]:
    """Device 1 with room for 64 MiB more than it has in use."""
    torch.accelerator.synchronize(1)
    room = torch.accelerator.memory_reserved(1) + 64 * MIB
    total = torch.openreg.mem_get_info(1)[1]
    torch.openreg.set_per_process_memory_fraction(room / total, 1)
    yield room
    torch.openreg.set_per_process_memory_fraction(1.0, 1)


@pytest.mark.proves("inside-convolution")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_convolution_needs_room_for_its_result_alone(dtype) -> None:
    """Its workspace is as large, or larger than the whole device."""
    x = torch.ones(1, 1, 1000, 1000, dtype=dtype, device="openreg:1")
    weight = torch.ones(8, 1, 3, 3, dtype=dtype, device="openreg:1")
    torch.openreg.empty_cache()
    result = 8 * 998 * 998 * dtype.itemsize
    room = torch.openreg.memory_reserved(1) + result + (4 << 20)
    total = torch.openreg.mem_get_info(1)[1]
    torch.openreg.set_per_process_memory_fraction(room / total, 1)
    try:
        assert (torch.conv2d(x, weight) == 9).all()
    finally:
        torch.openreg.set_per_process_memory_fraction(1.0, 1)


def here(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="openreg:1")


def test_a_full_pool_first_empties_its_cache(limit: int) -> None:
    kept = here(20).fill_(7)
    cached = here(30)
    del cached
    retries = stats(1)["num_alloc_retries"]
    grown = here(40)  # 20 and 40 fit if the 30 go
    assert stats(1)["num_alloc_retries"] == retries + 1
    assert bool((kept[::4096] == 7).all())
    del grown


def test_a_thread_in_its_turn_empties_the_cache_without_a_wait(
    limit: int,
) -> None:
    kept = here(20).fill_(7)
    cached = here(30)
    del cached
    stream = torch.openreg.default_stream(1).native_handle
    with _device.turn(stream):
        grown = here(40)
    assert bool((kept[::4096] == 7).all())
    del grown


def test_what_others_took_of_the_device_is_not_there_for_the_pool() -> None:
    """A segment is then as small as it can be, before that is an error."""
    with torch.openreg.device(1):
        torch.openreg.empty_cache()
        _device.set_device(1)
        block = _device.malloc(_device.memory_info()[0] - MIB)
        try:
            x = torch.full((MIB // 2,), 7, dtype=torch.uint8, device="openreg")
            assert bool((x.cpu() == 7).all())
            with pytest.raises(
                torch.OutOfMemoryError, match=f"allocate {MIB} "
            ):
                torch.empty(MIB, dtype=torch.uint8, device="openreg")
        finally:
            _device.free(block)


def test_two_sizes_that_share_a_place_are_both_used_again() -> None:
    """512 bytes and 512 KiB are the first two of the quick lists' sizes."""
    before = allocated()
    pair = [torch.ones(size, device="openreg") for size in (128, 128 << 10)]
    places = {x.data_ptr() for x in pair}
    pair.clear()
    assert allocated() == before
    large = torch.ones(128 << 10, device="openreg")
    small = torch.ones(128, device="openreg")
    assert large.data_ptr() in places
    assert float(large.sum() + small.sum()) == 128 * 1025


@pytest.mark.proves("messages.openreg-out-of-memory-tried-to")
def test_out_of_memory_says_all_that_matters(limit: int) -> None:
    kept = here(50).fill_(7)
    before = stats(1)
    free, total = torch.openreg.mem_get_info(1)
    with pytest.raises(torch.OutOfMemoryError) as error:
        here(20)
    assert str(error.value) == (
        f"openreg out of memory. Tried to allocate {20 * MIB} bytes on device "
        f"1, which has a capacity of {total} bytes, of which {free} are free. "
        f"This process has allocated {allocated(1)} and reserved "
        f"{torch.accelerator.memory_reserved(1)} bytes. "
        f"set_per_process_memory_fraction allows it {limit} bytes. Free "
        "tensors, use smaller ones or raise the fraction."
    )
    assert stats(1)["num_ooms"] == before["num_ooms"] + 1
    assert bool((kept[::4096] == 7).all())
    del kept
    assert here(60).fill_(1)[-1].item() == 1


@pytest.mark.queued
@pytest.mark.parametrize("user", [0, 1])
def test_out_of_memory_waits_for_blocks_that_streams_still_use(
    limit: int, user: int
) -> None:
    gate, side = Gate(), torch.openreg.Stream(user)
    x = here(40)
    with side:
        gate.hold()
    x.record_stream(side)
    del x
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    assert here(50).fill_(3)[-1].item() == 3
    opener.join()


def random_rounds(seed: int, rounds: int) -> list[str]:
    """What went wrong while tensors came and went, among them too many."""
    random = Random(seed)
    streams = [torch.openreg.Stream(1) for _ in range(4)]
    ones = [torch.ones(300, dtype=torch.uint8, device="openreg:1")] * 100
    torch.accelerator.synchronize(1)
    live: list[tuple[torch.Tensor, int, torch.Stream]] = []
    faults = []
    for step in range(rounds):
        stream = random.choice(streams)
        try:
            with stream:
                size = random.choice([300, 40_000, 900_000, 5_000_000])
                value = random.randrange(200)
                x = torch.full(
                    (size,), value, dtype=torch.uint8, device="openreg:1"
                )
                live.append((x, value, stream))
                # A hundred at once, in a call without Python's lock.
                x = torch.stack(torch._foreach_add(ones, value))
                live.append((x, value + 1, stream))
        except torch.OutOfMemoryError:
            live.clear()
        if live and random.random() < 0.7:
            x, value, stream = live.pop(random.randrange(len(live)))
            with stream:
                # On the host: the others may have filled the device.
                if not bool((x.cpu() == value).all()):
                    faults.append(f"step {step}: {value} was overwritten")
    return faults


@pytest.mark.proves("memory-nothing-lost")
@pytest.mark.parametrize(
    "rounds", [50, pytest.param(2000, marks=pytest.mark.stress)]
)
def test_random_rounds_of_threads_and_streams_lose_nothing(
    limit: int, rounds: int
) -> None:
    ooms, start = stats(1)["num_ooms"], allocated(1)
    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(random_rounds, seed, rounds) for seed in range(8)]
        assert [job.result() for job in work] == [[]] * 8
    assert stats(1)["num_ooms"] > ooms
    gc.collect()
    torch.accelerator.synchronize(1)
    torch.accelerator.empty_cache()
    after = stats(1)
    assert after["allocated_bytes.all.current"] == start
    assert after["active_bytes.all.current"] == start
    assert torch.accelerator.memory_reserved(1) == limit - 64 * MIB


@pytest.mark.queued
def test_a_failed_device_loses_no_block() -> None:
    side = torch.openreg.Stream(1)
    before = stats(1)["active_bytes.all.current"]
    x = torch.ones(1000, device="openreg:1")
    with side:
        torch.index_select(x, 0, torch.tensor([5000], device="openreg:1"))
        with pytest.raises(torch.AcceleratorError):
            side.synchronize()
    x.record_stream(side)
    del x
    torch.accelerator.empty_cache()
    torch.openreg.reset_device(1)
    gc.collect()
    torch.accelerator.empty_cache()
    assert stats(1)["active_bytes.all.current"] == before
    assert torch.ones(1000, device="openreg:1").sum().item() == 1000


@pytest.fixture
def settings() -> Iterator[Callable[[str], None]]:
    """Sets PyTorch's allocator options, and the defaults at the end."""
    yield torch._C._accelerator_setAllocatorSettings
    torch.accelerator.empty_cache()
    torch._C._accelerator_setAllocatorSettings(
        "large_segment_size_mb:20,roundup_power2_divisions:1"
    )


@pytest.mark.proves("memory.options.roundup_power2_divisions")
def test_sizes_can_be_rounded_to_parts_of_a_power_of_two(settings) -> None:
    settings("roundup_power2_divisions:4")
    before = allocated()
    x = empty(10 * MIB + 1)
    assert allocated() - before == 12 * MIB
    del x
    settings("roundup_power2_divisions:[8:1,>:2]")
    assert allocated() == before
    both = empty(20 * MIB + 1), empty(9 * MIB + 1)
    assert allocated() - before == 24 * MIB + 9 * MIB + 512
    del both


@pytest.mark.proves("memory.options.large_segment_size_mb")
def test_large_segments_can_have_another_size(settings) -> None:
    settings("large_segment_size_mb:40")
    reserved = torch.accelerator.memory_reserved()
    x = empty(2 * MIB)
    assert torch.accelerator.memory_reserved() - reserved == 40 * MIB
    del x


@pytest.mark.proves(
    "memory.options.max_split_size_mb",
    "memory.options.max_non_split_rounding_mb",
)
def test_blocks_above_a_size_are_never_split(settings) -> None:
    settings("max_split_size_mb:30")
    assert stats()["max_split_size"] == 30 * MIB
    oversize = stats()["oversize_allocations.current"]
    segments = stats()["oversize_segments.current"]
    x = empty(64 * MIB)
    address = x.data_ptr()
    assert stats()["oversize_allocations.current"] == oversize + 1
    assert stats()["oversize_segments.current"] == segments + 1
    del x
    small = empty(12 * MIB)
    assert small.data_ptr() != address  # a small request may not have it
    before = allocated()
    y = empty(60 * MIB)  # one of about its size gets all of it
    assert (y.data_ptr(), allocated() - before) == (address, 64 * MIB)
    del y
    assert empty(40 * MIB).data_ptr() != address  # but not one far below
    assert stats()["oversize_allocations.current"] == oversize
    torch.accelerator.empty_cache()
    assert stats()["oversize_segments.current"] == segments


@pytest.mark.proves("memory.options.garbage_collection_threshold")
def test_above_a_threshold_what_was_unused_for_longest_goes_first(
    settings, limit: int
) -> None:
    settings("garbage_collection_threshold:0.5")
    old, young = here(22), here(14)
    begin = old.data_ptr()
    del old
    del young
    frees = stats(1)["num_device_free"]
    x = here(24)  # nothing kept is large enough, and 36 of 64 MiB are kept
    assert stats(1)["num_device_free"] == frees + 1
    begins = {s["address"] for s in torch.openreg.memory_snapshot(1)}
    assert begin not in begins or begin == x.data_ptr()
    assert torch.accelerator.memory_reserved(1) == limit - 26 * MIB


@pytest.mark.proves("checklist.registerDeviceConfigParserHook")
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("no_such_option:1", "Unrecognized key 'no_such_option'"),
        ("max_split_size_mb:5", "max_split_size_mb too small"),
        ("garbage_collection_threshold:2", "set it in"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, message) -> None:
    with pytest.raises(ValueError, match=message):
        torch._C._accelerator_setAllocatorSettings(setting)
    assert empty(8).fill_(1).sum().item() == 8


def on_a_small_device(program: str, **environment: str) -> str:
    """What a program prints where a device has 64 MiB; it must succeed."""
    return prints(program, OPENREG_DEVICE_MEMORY="64M", **environment)


FULL_DEVICE = """
import torch
MIB = 1 << 20
torch.ones(1, device="openreg")
kept = torch.full((50 * MIB,), 7, dtype=torch.uint8, device="openreg")
try:
    torch.empty(20 * MIB, dtype=torch.uint8, device="openreg")
except torch.OutOfMemoryError as error:
    print(error)
# What is left is less than a segment usually has, and can still be had.
rest = torch.empty(5 * MIB, dtype=torch.uint8, device="openreg")
small = torch.ones(1000, device="openreg")
try:
    small.resize_(64 * MIB)
except torch.OutOfMemoryError:
    assert small.shape == (1000,)
assert small.sum().item() == 1000
assert bool((kept[::4096] == 7).all())
other = torch.empty(50 * MIB, dtype=torch.uint8, device="openreg:1")
"""


@pytest.mark.proves(
    "memory-full",
    "memory.options.expandable_segments",
    "messages.expandable_segments-has-no",
)
def test_a_full_device_raises_with_numbers_and_goes_on() -> None:
    printed = on_a_small_device(
        FULL_DEVICE,
        PYTORCH_ALLOC_CONF="expandable_segments:True,"
        "garbage_collection_threshold:0.9",
    )
    assert f"Tried to allocate {20 * MIB} bytes on device 0" in printed
    assert f"a capacity of {64 * MIB} bytes" in printed
    assert f"of which {14 * MIB} are free" in printed
    assert f"allocated {50 * MIB} and reserved {50 * MIB} bytes" in printed
    assert "or raise OPENREG_DEVICE_MEMORY." in printed
    assert "expandable_segments has no effect" in printed


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


LIMITED = """
import os
import resource

def limit(most):
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))

def use():
    try:
        print(torch.ones(3, device="openreg").tolist())
    except RuntimeError as error:
        print(error)

before = resource.getrlimit(resource.RLIMIT_AS)
limit(12 << 30)
import torch
import torch_openreg

ours = torch.openreg
print(ours.is_available(), ours.device_count(), ours.current_device())
ours.empty_cache()
ours.reset_peak_memory_stats()
print(ours.memory_allocated(), ours.max_memory_reserved())
use()
# Enough for the devices, but not for what the pool adds.
pages = int(open("/proc/self/statm").read().split()[0])
limit(pages * os.sysconf("SC_PAGE_SIZE") + (16 << 30) + (32 << 20))
use()
limit(before[0])
use()
"""


@pytest.mark.proves(
    "emulator-import-reserves-nothing",
    "errors.codes.orErrorInitializationError",
)
def test_the_import_reserves_no_addresses_and_the_first_use_may_be_repeated():
    settings = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    printed = prints(LIMITED, OPENREG_DEVICE_MEMORY="4G", **settings)
    assert printed.splitlines() == [
        "True 2 0",
        "0 0",
        "orErrorInitializationError (the devices could not be started) from "
        f"orMalloc: cannot reserve {16 << 30} bytes of addresses, twice the "
        f"memory of 2 devices of {4 << 30} bytes: Cannot allocate memory; "
        f"ulimit -v is {12 << 20} KiB. Raise that limit, or set "
        "OPENREG_DEVICE_MEMORY to fewer bytes",
        f"cannot map {64 << 20} bytes for the table of device 0's blocks; "
        "raise ulimit -v, or set OPENREG_DEVICE_MEMORY to fewer bytes: Cannot "
        "allocate memory",
        "[1.0, 1.0, 1.0]",
    ]


def test_the_profiler_sees_allocations() -> None:
    with torch.profiler.profile(profile_memory=True) as profile:
        x = torch.empty(1000, device="openreg")
        del x
    events = profile.profiler.kineto_results.events()
    told = [e.nbytes() for e in events if e.name() == "[memory]"]
    assert told == [4000, -4000]
