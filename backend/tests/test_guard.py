"""The guard, reached by the code of PyTorch that moves between devices."""

from __future__ import annotations

import pytest
import torch

from torch_openreg import _C

openreg = torch.openreg


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "meta"])
def test_another_device_type_is_refused(device):
    expected = f"guard of openreg devices was given the device {device}"
    with pytest.raises(RuntimeError, match=expected):
        _C._guard_set_device(torch.device(device))
    assert openreg.current_device() == 0


def test_its_own_device_type_is_taken():
    _C._guard_set_device(torch.device("openreg:1"))
    assert openreg.current_device() == 1


def test_the_accelerator_api_goes_through_the_guard():
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1
    assert torch._C._accelerator_exchangeDevice(0) == 1
    with pytest.raises(RuntimeError, match=r"\[0, 2\), but got 2"):
        torch.accelerator.set_device_index(2)
    assert openreg.current_device() == 0


def test_the_way_back_does_not_raise():
    # What a destructor does: an invalid index is ignored.
    torch._C._accelerator_maybeExchangeDevice(1)
    torch._C._accelerator_maybeExchangeDevice(100)
    assert openreg.current_device() == 1


def test_device_guard_goes_back_after_an_exception():
    assert torch.empty(1, device="openreg:1").device.index == 1
    assert openreg.current_device() == 0
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**60, dtype=torch.uint8, device="openreg:1")
    assert openreg.current_device() == 0


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_optional_device_guard_goes_back_after_an_exception():
    seen = []

    def fail(x):
        seen.append(openreg.current_device())
        raise KeyError

    x = torch.ones(2, device="openreg:1")
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("nonzero", fail, "PrivateUse1", allow_override=True)
        with pytest.raises(KeyError):
            x.nonzero()
    assert seen == [1]
    assert openreg.current_device() == 0
    assert x.nonzero().tolist() == [[0], [1]]


def test_autograd_asks_for_the_number_of_devices_and_sets_theirs():
    # Each device's backward thread makes its device current at the start.
    seen = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(openreg.current_device())
            return grad

    x = torch.ones(1, device="openreg:1", requires_grad=True)
    Look.apply(x).sum().backward()
    assert seen == [1]
    assert x.grad.device.index == 1


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_capability_lists_the_dtypes_that_can_be_copied():
    listed = torch.accelerator.get_device_capability(1)["supported_dtypes"]
    assert {torch.float32, torch.bool, torch.float8_e8m0fnu} <= listed
    for dtype in listed:
        x = torch.arange(4).to(torch.float32).to(dtype)
        back = x.to("openreg:1").clone().cpu()
        assert back.dtype == dtype
        assert torch.equal(back.view(torch.uint8), x.view(torch.uint8))


def test_capability_leaves_out_what_no_kernel_can_copy():
    listed = torch.accelerator.get_device_capability()["supported_dtypes"]
    for dtype in (torch.bits8, torch.uint1, torch.int4, torch.qint8):
        assert dtype not in listed


class TestStreams:
    def test_the_current_stream_names_its_device(self):
        for device in (0, 1):
            stream = torch.accelerator.current_stream(device)
            assert stream.device == torch.device("openreg", device)
            assert stream.stream_id == 0

    def test_setting_the_default_stream_sets_its_device(self):
        stream = torch.accelerator.current_stream(1)
        torch.accelerator.set_stream(stream)
        assert torch.accelerator.current_stream() == stream

    def test_the_default_stream_is_idle_between_calls(self):
        x = torch.ones(4, device="openreg")
        y = x + x
        stream = torch.accelerator.current_stream()
        assert stream.query()
        stream.synchronize()
        assert y.sum().item() == 8

    def test_native_handles_differ(self):
        handles = {
            torch.accelerator.current_stream(device).native_handle
            for device in (0, 1)
        }
        assert len(handles) == 2
        assert 0 not in handles

    def test_a_stream_that_does_not_exist_is_refused(self):
        stream = torch.Stream(stream_id=3, device_index=1, device_type=20)
        expected = "There is no stream 3 on openreg:1"
        for use in (stream.query, stream.synchronize):
            with pytest.raises(RuntimeError, match=expected):
                use()
        with pytest.raises(RuntimeError, match=expected):
            torch.accelerator.set_stream(stream)
