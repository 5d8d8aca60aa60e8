"""The hooks, each reached through the PyTorch function that asks it."""

from __future__ import annotations

import pytest
import torch

from torch_device_kit.reach import from_blob, is_built

openreg = torch.openreg


@pytest.mark.proves(
    "hooks.high.hasPrimaryContext",
    "checklist.RegisterPrivateUse1HooksInterface",
)
def test_has_primary_context_lets_backward_run_on_every_device():
    # Backward asks it of each device, to know which streams to remember.
    for device in ("openreg:0", "openreg:1"):
        x = torch.ones(2, device=device, requires_grad=True)
        (x * x).sum().backward()
        assert x.grad.tolist() == [2, 2]


@pytest.mark.proves("hooks.low.isBuilt")
def test_is_built():
    assert is_built()


@pytest.mark.proves("hooks.low.isAvailable")
def test_is_available_makes_openreg_the_accelerator():
    assert torch._C._get_accelerator(check=True) == torch.device("openreg")


@pytest.mark.proves("hooks.low.deviceCount")
def test_device_count():
    assert torch._C._accelerator_hooks_device_count() == 2


@pytest.mark.proves("hooks.low.setCurrentDevice", "hooks.low.getCurrentDevice")
def test_set_and_get_current_device():
    torch._C._accelerator_hooks_set_current_device(1)
    assert torch._C._accelerator_hooks_get_current_device() == 1
    assert openreg.current_device() == 1
    with pytest.raises(RuntimeError, match="out of range"):
        torch._C._accelerator_hooks_set_current_device(2)


@pytest.mark.proves("hooks.low.exchangeDevice")
def test_exchange_device():
    assert torch._C._accelerator_hooks_exchange_device(1) == 0
    assert openreg.current_device() == 1
    with pytest.raises(RuntimeError, match="out of range"):
        torch._C._accelerator_hooks_exchange_device(-1)


@pytest.mark.proves("hooks.low.maybeExchangeDevice")
def test_maybe_exchange_device():
    assert torch._C._accelerator_hooks_maybe_exchange_device(1) == 0
    assert torch._C._accelerator_hooks_maybe_exchange_device(-1) == -1
    assert openreg.current_device() == 1


@pytest.mark.proves("hooks.high.getDefaultGenerator")
def test_default_generator_is_what_a_device_draws_from():
    torch.manual_seed(5)
    first = torch.rand(3, device="openreg:1")
    again = torch.Generator("openreg:1").manual_seed(5)
    assert torch.equal(
        first, torch.rand(3, device="openreg:1", generator=again)
    )


def test_default_generator_of_no_device_is_refused():
    with pytest.raises(RuntimeError, match=r"\[0, 2\), but got 2"):
        openreg.get_rng_state(2)


@pytest.mark.proves("hooks.high.getNewGenerator", "checklist.getNewGenerator")
def test_new_generator_is_of_the_device_asked_for():
    assert torch.Generator("openreg:1").device == torch.device("openreg:1")
    openreg.set_device(1)
    assert torch.Generator("openreg").device == torch.device("openreg:1")
    with pytest.raises(RuntimeError, match=r"\[0, 2\), but got 7"):
        torch.Generator("openreg:7")


@pytest.mark.proves("hooks.high.getDeviceFromPtr")
def test_device_from_ptr_finds_the_device_of_an_address():
    x = torch.ones(8, device="openreg:1")
    assert from_blob(x.data_ptr(), 1) == ""
    assert from_blob(x.data_ptr() + 8, 1) == ""  # anywhere in the block
    assert "data openreg:1" in from_blob(x.data_ptr(), 0)


@pytest.mark.proves("messages.is-host-memory-not-memory-of")
def test_device_from_ptr_refuses_host_memory():
    told = from_blob(torch.ones(2).data_ptr(), 0)
    assert "is host memory, not memory of an openreg device" in told


@pytest.mark.proves(
    "hooks.high.getPinnedMemoryAllocator", "hooks.high.isPinnedPtr"
)
def test_pinned_memory_allocator_and_is_pinned():
    pinned = torch.empty(5, pin_memory=True)
    assert pinned.is_pinned()
    assert pinned[3:].is_pinned()
    assert not torch.empty(5).is_pinned()


@pytest.mark.proves(
    "hooks-resize",
    "hooks.own.resizePrivateUse1Bytes",
    "checklist.resizePrivateUse1Bytes",
)
@pytest.mark.parametrize("size", [0, 4, 12, 40, 10_000_000])
def test_resize_keeps_the_bytes_that_fit(size):
    x = torch.arange(12, dtype=torch.uint8).to("openreg:1")
    storage = x.untyped_storage()
    storage.resize_(size)
    assert storage.nbytes() == size
    kept = min(size, 12)
    y = torch.empty(0, dtype=torch.uint8, device="openreg:1").set_(
        storage, 0, (kept,)
    )
    assert y.tolist() == list(range(kept))
    assert y.device.index == 1
    assert openreg.current_device() == 0


@pytest.mark.proves("operators-full-device")
def test_resize_without_room_changes_nothing():
    x = torch.arange(4, device="openreg:1")
    address = x.data_ptr()
    with pytest.raises(torch.OutOfMemoryError):
        x.untyped_storage().resize_(2**50)
    assert x.data_ptr() == address
    assert x.tolist() == [0, 1, 2, 3]
