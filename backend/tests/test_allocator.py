"""What PyTorch asks of the allocator itself, beside the pool behind it."""

from __future__ import annotations

import pytest
import torch

MIB = 1 << 20


def empty(size: int, device: str = "openreg") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def test_a_storage_comes_from_the_pool() -> None:
    before = torch.accelerator.memory_allocated("openreg:1")
    storage = torch.UntypedStorage(3 * MIB, device="openreg:1")
    assert torch.accelerator.memory_allocated("openreg:1") == before + 3 * MIB
    del storage
    assert torch.accelerator.memory_allocated("openreg:1") == before


def test_memory_info_is_each_devices_own() -> None:
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


def test_record_stream_is_accepted() -> None:
    x = empty(8)
    x.record_stream(torch.accelerator.current_stream())
    assert (x.fill_(3) == 3).all()


@pytest.mark.parametrize("size", [1 << 40, 1 << 50, 1 << 60, (1 << 63) - 1])
def test_no_size_is_too_large_to_be_refused(size: int) -> None:
    with pytest.raises(
        torch.OutOfMemoryError, match=f"Tried to allocate {size} bytes"
    ):
        empty(size)
    assert (empty(8).fill_(1) == 1).all()
