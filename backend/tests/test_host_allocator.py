"""Pinned memory: where it comes from, and that it is known for what it is."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torch_openreg._C

device_library = ctypes.CDLL(
    str(Path(torch_openreg._C.__file__).parent / "lib" / "libopenreg.so")
)


class Attributes(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("base", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
    ]


def attributes(address: int) -> Attributes:
    """What the device itself says about an address."""
    answer = Attributes()
    status = device_library.orPointerGetAttributes(
        ctypes.byref(answer), ctypes.c_void_p(address)
    )
    assert status == 0
    return answer


HOST = 1


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


def test_a_freed_block_is_used_again():
    x = torch.empty(12345, pin_memory=True)
    address = x.data_ptr()
    del x
    assert torch.empty(12345, pin_memory=True).data_ptr() == address


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


def test_data_loader_pins_its_batches():
    data = TensorDataset(torch.arange(8.0).reshape(4, 2))
    batches = [batch for (batch,) in DataLoader(data, 2, pin_memory=True)]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cat(batches).flatten().tolist() == list(range(8))
