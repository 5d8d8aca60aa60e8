"""Pinned memory: where it comes from, and that it is known for what it is."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from _device import HOST, attributes
from _fresh import prints
from torch_openreg.openreg.testing import Gate


@pytest.mark.proves(
    "checklist.getPinnedMemoryAllocator", "memory.host.allocate"
)
def test_pinned_memory_is_the_devices_host_memory():
    x = torch.arange(6.0).pin_memory()
    assert x.is_pinned()
    assert x.device.type == "cpu"
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    block = attributes(x.data_ptr())
    assert block.type == HOST
    assert block.size >= 24


def test_every_part_of_a_block_is_pinned_and_nothing_else():
    x = torch.empty(1000, pin_memory=True)
    assert x[1:].is_pinned()
    assert x[999:].is_pinned()
    assert x.untyped_storage().is_pinned()
    assert not torch.empty(1000).is_pinned()
    assert not torch.empty(1000, device="openreg").is_pinned()
    assert x.pin_memory() is x


def test_an_empty_tensor_can_be_pinned():
    assert torch.empty(0).pin_memory().numel() == 0


@pytest.mark.parametrize("non_blocking", [False, True])
def test_pinned_memory_copies_to_a_device_and_back(non_blocking):
    x = torch.randn(257).pin_memory()
    y = x.to("openreg:1", non_blocking=non_blocking)
    back = torch.empty(257, pin_memory=True)
    back.copy_(y, non_blocking=non_blocking)
    torch.accelerator.synchronize(1)
    assert torch.equal(back, x)


@pytest.mark.proves(
    "memory.host.record_event",
    "memory.cache.record_event",
    "memory.cache.add_allocated_block",
    "memory.cache.get_free_block",
    "memory.cache.process_events",
    "memory.cache.process_events_for_specific_size",
    "memory.cache.record_stream",
    "memory.cache.query_event",
)
@pytest.mark.queued
@pytest.mark.parametrize("direction", ["to the device", "from the device"])
def test_a_block_waits_for_the_copy_that_uses_it(direction):
    gate, side = Gate(), torch.openreg.Stream()
    pinned = torch.full((5000,), 1.0).pin_memory()
    there = torch.full((5000,), 2.0, device="openreg")
    torch.accelerator.synchronize()
    address = pinned.data_ptr()
    with side:
        gate.hold()
        if direction == "to the device":
            there.copy_(pinned, non_blocking=True)
        else:
            pinned.copy_(there, non_blocking=True)
    del pinned
    other = torch.zeros(5000).pin_memory()
    assert other.data_ptr() != address
    gate.open()
    side.synchronize()
    assert there.sum().item() == 5000 * (1 if "to" in direction[:2] else 2)
    assert torch.empty(5000, pin_memory=True).data_ptr() == address


@pytest.mark.queued
def test_a_later_use_of_the_stream_does_not_keep_a_block():
    side = torch.openreg.Stream()
    pinned = torch.ones(6000).pin_memory()
    address = pinned.data_ptr()
    with side:
        pinned.to("openreg", non_blocking=True)
    side.synchronize()
    del pinned
    gate = Gate()
    gate.hold(side)  # work that came after the free
    assert torch.empty(6000, pin_memory=True).data_ptr() == address
    gate.open()


@pytest.mark.queued
def test_a_slice_keeps_its_block_for_the_copy_that_uses_it():
    gate, side = Gate(), torch.openreg.Stream()
    pinned = torch.arange(7000.0).pin_memory()
    address = pinned.data_ptr()
    with side:
        gate.hold()
        there = pinned[10:20].to("openreg", non_blocking=True)
    del pinned
    assert torch.empty(7000, pin_memory=True).data_ptr() != address
    gate.open()
    side.synchronize()
    assert there.tolist() == list(range(10, 20))


@pytest.mark.queued
def test_a_block_freed_on_a_failed_device_comes_back_after_the_reset():
    side = torch.openreg.Stream(1)
    pinned = torch.ones(9000).pin_memory()
    address = pinned.data_ptr()
    with side:
        there = pinned.to("openreg:1", non_blocking=True)
        torch.index_select(there, 0, torch.tensor([-1], device="openreg:1"))
        with pytest.raises(torch.AcceleratorError):
            side.synchronize()
    del pinned
    assert torch.empty(9000, pin_memory=True).data_ptr() != address
    torch.openreg.reset_device(1)
    assert torch.empty(9000, pin_memory=True).data_ptr() == address


@pytest.mark.proves("memory.cache.allocate")
def test_a_freed_block_is_used_again():
    x = torch.empty(12345, pin_memory=True)
    address = x.data_ptr()
    del x
    assert torch.empty(12345, pin_memory=True).data_ptr() == address


@pytest.mark.proves(
    "memory.host.empty_cache",
    "memory.cache.empty_cache",
    "memory.cache.allocate_host_memory",
    "memory.cache.free_block",
)
def test_empty_host_cache_returns_what_is_free():
    kept = torch.empty(70_000, pin_memory=True)
    freed = torch.empty(80_000, pin_memory=True)
    address = freed.data_ptr()
    del freed
    assert attributes(address).type == HOST  # cached
    torch.accelerator.empty_host_cache()
    assert attributes(address).type != HOST
    assert kept.is_pinned()


def test_a_pinned_copy_of_the_shape_can_be_made():
    x = torch.empty_like(torch.ones(3), pin_memory=True)
    assert x.is_pinned()
    assert x.shape == (3,)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_pins_its_batches(workers):
    data = TensorDataset(torch.arange(8.0).reshape(4, 2))
    loader = DataLoader(data, 2, pin_memory=True, num_workers=workers)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    there = [batch.to("openreg", non_blocking=True) for batch in batches]
    assert torch.cat(there).flatten().tolist() == list(range(8))


@pytest.mark.proves(
    "memory.host.get_stats",
    "memory.host.reset_accumulated_stats",
    "memory.host.reset_peak_stats",
)
def test_statistics_follow_every_pinned_block():
    torch.accelerator.empty_host_cache()
    torch.openreg.reset_accumulated_host_memory_stats()
    torch.openreg.reset_peak_host_memory_stats()
    start = torch.openreg.host_memory_stats()
    x = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    during = torch.openreg.host_memory_stats()
    for name, more in [
        ("active_requests.current", 1),
        ("active_bytes.current", 1 << 20),
        ("allocated_bytes.current", 1 << 20),
        ("allocations.allocated", 1),
        ("num_host_alloc", 1),
        ("host_alloc_time.count", 1),
    ]:
        assert during[name] == start[name] + more, name
    del x
    torch.accelerator.empty_host_cache()
    after = torch.openreg.host_memory_stats()
    assert after["active_bytes.current"] == start["active_bytes.current"]
    assert after["allocated_bytes.current"] == start["allocated_bytes.current"]
    assert after["active_bytes.peak"] == start["active_bytes.peak"] + (1 << 20)
    assert after["num_host_free"] == 1
    torch.openreg.reset_peak_host_memory_stats()
    torch.openreg.reset_accumulated_host_memory_stats()
    reset = torch.openreg.host_memory_stats()
    assert reset["allocated_bytes.peak"] == reset["allocated_bytes.current"]
    assert reset["allocations.allocated"] == reset["num_host_free"] == 0


@pytest.fixture
def settings():
    yield torch._C._accelerator_setAllocatorSettings
    torch._C._accelerator_setAllocatorSettings(
        "pinned_max_round_threshold_mb:1000000,"
        "pinned_max_cached_size_mb:1000000"
    )


@pytest.mark.proves(
    "memory.cache.pinned_max_round_threshold",
    "memory.options.pinned_max_round_threshold_mb",
)
def test_sizes_above_a_threshold_are_not_rounded(settings):
    settings("pinned_max_round_threshold_mb:1")
    x = torch.empty((1 << 20) + 5000, dtype=torch.uint8, pin_memory=True)
    assert attributes(x.data_ptr()).size < 2 << 20
    y = torch.empty(600_000, dtype=torch.uint8, pin_memory=True)
    assert attributes(y.data_ptr()).size == 1 << 20


@pytest.mark.proves(
    "memory.cache.pinned_max_cached_size",
    "memory.options.pinned_max_cached_size_mb",
)
def test_blocks_above_a_size_are_not_cached(settings):
    settings("pinned_max_cached_size_mb:1")
    x = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    address = x.data_ptr()
    del x
    assert attributes(address).type != HOST


@pytest.mark.proves("memory.cache.free")
@pytest.mark.queued
@pytest.mark.parametrize("way", ["empty_host_cache", "free", "allocate"])
def test_a_block_that_is_given_back_lets_other_threads_run(
    settings, hold, side, way
):
    torch.zeros(1, device="openreg")
    x = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    address = x.data_ptr()
    if way == "empty_host_cache":
        del x
        gate = hold()
        threading.Timer(0.05, gate.open).start()
        torch.accelerator.empty_host_cache()
    elif way == "free":
        settings("pinned_max_cached_size_mb:1")
        gate = hold()
        threading.Timer(0.05, gate.open).start()
        del x
    else:
        settings("pinned_max_cached_size_mb:1")
        y = x.to("openreg", non_blocking=True)
        del x  # Not yet: the copy may still read it.
        y.sum().item()
        gate = hold()
        threading.Timer(0.05, gate.open).start()
        torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    assert attributes(address).type != HOST


BEFORE_ANY_USE = """
import itertools, os, torch
torch.accelerator.empty_host_cache()
print(torch.openreg.host_memory_stats()["num_host_free"])
x = torch.ones(3, pin_memory=True)
torch._C._accelerator_setAllocatorSettings("pinned_use_background_threads:True")
with torch.openreg.Stream():
    y = x.to("openreg", non_blocking=True)
address = x.data_ptr()
del x
for count in itertools.count(1):  # until the thread has given the block back
    held = [torch.ones(3, pin_memory=True) for _ in range(count)]
    if any(x.data_ptr() == address for x in held):
        break
    os.sched_yield()
print(y.sum().item())
"""


@pytest.mark.proves(
    "memory.cache.pinned_use_background_threads",
    "memory.options.pinned_use_background_threads",
)
@pytest.mark.one_mode
def test_the_cache_can_be_emptied_before_any_use_and_served_by_a_thread():
    assert prints(BEFORE_ANY_USE) == "0\n3.0\n"
