"""Each method of c10::DeviceAllocator, reached through PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from torch_openreg.openreg.testing import Gate

MIB = 1 << 20


def empty(size: int, device: str = "openreg") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def stat(name: str, device: str = "openreg:0") -> int:
    return torch.accelerator.memory_stats(device)[name]


@pytest.fixture
def side() -> Iterator[torch.Stream]:
    """A stream beside the current one, at rest before and after."""
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    stream = torch.openreg.Stream()
    yield stream
    stream.synchronize()


@pytest.mark.proves("checklist.SetAllocator", "memory.allocator.allocate")
def test_allocate_gives_a_storage_memory_of_the_pool() -> None:
    before = torch.accelerator.memory_allocated("openreg:1")
    storage = torch.UntypedStorage(3 * MIB, device="openreg:1")
    assert torch.accelerator.memory_allocated("openreg:1") == before + 3 * MIB
    del storage
    assert torch.accelerator.memory_allocated("openreg:1") == before


@pytest.mark.proves(
    "memory.allocator.is_simple_data_ptr", "memory.allocator.copy_data"
)
def test_copy_data_parts_a_lazy_clone_from_its_source() -> None:
    x = torch.arange(4.0, device="openreg")
    clone = torch._lazy_clone(x)
    clone.add_(1)
    assert clone.tolist() == [1, 2, 3, 4]
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.proves("memory.allocator.getMemoryInfo")
def test_get_memory_info_is_each_devices_own() -> None:
    torch.accelerator.empty_cache()
    free, total = torch.accelerator.get_memory_info("openreg:0")
    other = torch.accelerator.get_memory_info("openreg:1")
    x = empty(32 * MIB)
    assert torch.accelerator.get_memory_info("openreg:1") == other
    assert torch.accelerator.get_memory_info("openreg:0") == (
        free - 32 * MIB,
        total,
    )
    del x
    torch.accelerator.empty_cache()
    assert torch.accelerator.get_memory_info("openreg:0") == (free, total)


@pytest.mark.proves("memory.allocator.initialized")
def test_empty_cache_gives_memory_back() -> None:
    x = empty(32 * MIB)
    keep = torch.full((100,), 3.0, device="openreg")
    del x
    assert torch.accelerator.memory_reserved() >= 32 * MIB
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < 32 * MIB
    assert keep.sum().item() == 300


@pytest.mark.proves("memory.allocator.emptyCache")
@pytest.mark.queued
def test_empty_cache_waits_for_work_and_lets_other_threads_run(side) -> None:
    gate = Gate()
    x = torch.zeros(8 * MIB, device="openreg")
    torch.accelerator.synchronize()
    with side:
        gate.hold()
        x.add_(1)
    x.record_stream(side)
    del x
    opened = threading.Event()

    def open_gate() -> None:
        opened.set()
        gate.open()

    threading.Timer(0.05, open_gate).start()
    torch.accelerator.empty_cache()
    assert opened.is_set()
    assert side.query()
    assert torch.accelerator.memory_reserved() < 32 * MIB
    assert stat("num_sync_all_streams") > 0


@pytest.mark.proves(
    "memory-record-stream",
    "checklist.record_stream",
    "memory.allocator.recordStream",
)
@pytest.mark.queued
def test_record_stream_keeps_a_block_until_that_stream_is_done(side) -> None:
    gate = Gate()
    x = empty(1000)
    address = x.data_ptr()
    with side:
        gate.hold()
    x.record_stream(side)
    allocations, active = (
        stat("allocation.all.current"),
        stat("active.all.current"),
    )
    del x
    assert stat("allocation.all.current") == allocations - 1
    assert stat("active.all.current") == active
    other = empty(1000)
    assert other.data_ptr() != address
    gate.open()
    side.synchronize()
    assert empty(1000).data_ptr() == address
    assert stat("active.all.current") == active


@pytest.mark.queued
def test_without_record_stream_a_block_is_used_again_at_once(side) -> None:
    gate = Gate()
    x = empty(1000)
    address = x.data_ptr()
    with side:
        gate.hold()
    del x
    assert empty(1000).data_ptr() == address
    gate.open()


def test_record_stream_of_the_blocks_own_stream_changes_nothing() -> None:
    x = empty(1000)
    address = x.data_ptr()
    x.record_stream(torch.accelerator.current_stream())
    del x
    assert empty(1000).data_ptr() == address


def test_record_stream_accepts_a_tensor_without_memory() -> None:
    empty(0).record_stream(torch.openreg.Stream())


@pytest.mark.proves("messages.expected-a-stream-of-an")
def test_record_stream_refuses_a_stream_of_another_kind() -> None:
    x = empty(8)
    with pytest.raises(RuntimeError, match="Expected a stream of an openreg"):
        x.record_stream(torch.Stream(0, 0, 0))


def test_record_stream_knows_the_streams_of_every_device() -> None:
    x = torch.ones(1000, device="openreg:0")
    x.record_stream(torch.openreg.Stream("openreg:1"))
    before = torch.accelerator.memory_allocated()
    del x
    assert torch.accelerator.memory_allocated() == before - 4096
    torch.accelerator.synchronize(1)
    torch.accelerator.empty_cache()
    assert (
        torch.accelerator.memory_stats()["active_bytes.all.current"]
        == torch.accelerator.memory_allocated()
    )


def test_blocks_go_back_to_the_stream_they_were_made_for(side) -> None:
    with side:
        x = empty(1000)
        address = x.data_ptr()
        del x
    assert empty(1000).data_ptr() != address
    with side:
        assert empty(1000).data_ptr() == address


@pytest.mark.parametrize("size", [1 << 40, 1 << 50, 1 << 60, (1 << 63) - 1])
def test_no_size_is_too_large_to_be_refused(size: int) -> None:
    with pytest.raises(
        torch.OutOfMemoryError, match=f"Tried to allocate {size} bytes"
    ):
        empty(size)
    assert (empty(8).fill_(1) == 1).all()
