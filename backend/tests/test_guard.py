"""The guard, reached by the code of PyTorch that moves between devices."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
import torch

import _device as d
from _tensors import in_backward
from torch_device_kit.reach import default_stream
from torch_openreg import _C

openreg = torch.openreg


@pytest.mark.proves("messages.devices-was-given-the-device")
@pytest.mark.parametrize("device", ["cpu", "cuda:1", "meta"])
def test_another_device_type_is_refused(device):
    expected = f"guard of openreg devices was given the device {device}"
    with pytest.raises(RuntimeError, match=expected):
        _C._guard_set_device(torch.device(device))
    assert openreg.current_device() == 0


@pytest.mark.proves("guard.type")
def test_its_own_device_type_is_taken():
    _C._guard_set_device(torch.device("openreg:1"))
    assert openreg.current_device() == 1


@pytest.mark.proves(
    "guard.getDevice",
    "guard.setDevice",
    "accelerator.current_device_index",
    "accelerator.set_device_index",
)
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


@pytest.mark.proves(
    "guard-restores",
    "guard.exchangeDevice",
    "guard.uncheckedSetDevice",
    "checklist.C10_REGISTER_GUARD_IMPL",
)
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


@pytest.mark.proves("guard.deviceCount")
def test_autograd_asks_for_the_number_of_devices_and_sets_theirs():
    # Each device's backward thread makes its device current at the start.
    seen = []

    x = torch.ones(1, device="openreg:1", requires_grad=True)
    y = in_backward(x, lambda: seen.append(openreg.current_device()))
    y.sum().backward()
    assert seen == [1]
    assert x.grad.device.index == 1


@pytest.mark.proves(
    "guard.getDeviceCapability",
    "checklist.getDeviceCapability",
    "accelerator.get_device_capability",
)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_capability_lists_the_dtypes_that_can_be_copied():
    listed = torch.accelerator.get_device_capability(1)["supported_dtypes"]
    assert {torch.float32, torch.bool, torch.float8_e8m0fnu} <= listed
    quantized = {torch.qint8, torch.quint8, torch.qint32}
    packed = {torch.quint4x2, torch.quint2x4}  # several values in a byte
    assert quantized | packed <= listed
    for dtype in listed - quantized - packed:
        x = torch.arange(4).to(torch.float32).to(dtype)
        back = x.to("openreg:1").clone().cpu()
        assert back.dtype == dtype
        assert torch.equal(back.view(torch.uint8), x.view(torch.uint8))
    for dtype in quantized:
        x = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, dtype)
        back = x.to("openreg:1").clone().cpu()
        assert back.dtype == dtype
        assert torch.equal(back.int_repr(), x.int_repr())
    for dtype in packed:  # which PyTorch does not clone on any device
        x = torch.arange(16.0).reshape(2, 8)
        scales, zeros = torch.tensor([0.5, 1.0]), torch.zeros(2)
        x = torch.quantize_per_channel(x, scales, zeros, 0, dtype)
        back = x.to("openreg:1").cpu()
        assert back.dtype == dtype
        assert torch.equal(back.dequantize(), x.dequantize())


def test_capability_leaves_out_what_no_kernel_can_copy():
    listed = torch.accelerator.get_device_capability()["supported_dtypes"]
    for dtype in (torch.bits8, torch.uint1, torch.int4):
        assert dtype not in listed


@pytest.mark.proves("guard-two-devices", "guard.block")
def test_backward_crosses_devices():
    # Where a gradient changes its device, one stream waits for the other.
    x = torch.arange(4.0, device="openreg:0", requires_grad=True)
    y = torch.arange(4.0, device="openreg:1", requires_grad=True)
    ((x.to("openreg:1") * y).to("openreg:0") * x).sum().backward()
    assert x.grad.tolist() == [0, 2, 8, 18]
    assert y.grad.tolist() == [0, 1, 4, 9]
    assert (x.grad.device.index, y.grad.device.index) == (0, 1)


@pytest.mark.proves("guard.synchronizeDevice", "checklist.synchronizeDevice")
def test_synchronize_waits_for_the_device_named():
    event = torch.Event("openreg")
    with torch.Stream("openreg:1"):
        x = torch.ones(1000, device="openreg:1") + 1
        event.record()
    torch.accelerator.synchronize(1)
    assert event.query()
    assert x.sum().item() == 2000
    assert openreg.current_device() == 0


class TestStreams:
    @pytest.mark.proves("guard.getStream")
    def test_the_current_stream_names_its_device(self):
        for device in (0, 1):
            stream = torch.accelerator.current_stream(device)
            assert stream.device == torch.device("openreg", device)
            assert stream.stream_id == 0

    @pytest.mark.proves("guard.getDefaultStream")
    def test_the_default_stream_is_the_one_numbered_0(self):
        # Only C++ asks for it.
        assert default_stream(1) == (20, 1, 0)
        openreg.set_device(1)
        with torch.Stream("openreg:1"):
            assert default_stream(-1) == (20, 1, 0)
            assert torch.accelerator.current_stream().stream_id != 0

    @pytest.mark.proves("guard.getNewStream", "checklist.getNewStream")
    def test_a_new_stream_names_its_device(self):
        with openreg.device(1):
            streams = [torch.Stream("openreg"), torch.Stream()]
        streams.append(torch.Stream("openreg:1", priority=-1))
        for stream in streams:
            assert stream.device == torch.device("openreg:1")
        assert len({stream.stream_id for stream in streams} - {0}) == 3

    @pytest.mark.proves("guard.exchangeStream")
    def test_setting_a_stream_sets_its_device(self):
        before = torch.accelerator.current_stream(1)
        stream = torch.Stream("openreg:1")
        torch.accelerator.set_stream(stream)
        try:
            assert openreg.current_device() == 1
            assert torch.accelerator.current_stream() == stream
        finally:
            torch.accelerator.set_stream(before)

    def test_a_stream_is_left_with_its_device_after_an_exception(self):
        with pytest.raises(KeyError), torch.Stream("openreg:1"):
            assert openreg.current_device() == 1
            raise KeyError
        assert openreg.current_device() == 0
        assert torch.accelerator.current_stream(1).stream_id == 0

    def test_each_thread_has_its_own_current_stream(self):
        seen = []
        with torch.Stream("openreg:0"):
            thread = threading.Thread(
                target=lambda: seen.append(torch.accelerator.current_stream())
            )
            thread.start()
            thread.join()
        assert [stream.stream_id for stream in seen] == [0]

    @pytest.mark.proves("guard.queryStream", "guard.synchronizeStream")
    @pytest.mark.queued
    def test_a_stream_is_asked_and_waited_for(self):
        stream, gate = torch.Stream("openreg:1"), openreg.testing.Gate()
        assert stream.query()
        gate.hold(stream)
        assert not stream.query()
        gate.open()
        stream.synchronize()
        assert stream.query()

    @pytest.mark.proves("guard.getStreamNativeHandle")
    def test_native_handles_differ(self):
        streams = [torch.accelerator.current_stream(d) for d in (0, 1)]
        streams += [torch.Stream("openreg"), torch.Stream("openreg")]
        handles = {stream.native_handle for stream in streams}
        assert len(handles) == 4
        assert 0 not in handles

    @pytest.mark.proves(
        "guard.isStreamCapturing", "stream.streams.Stream.is_capturing"
    )
    def test_a_stream_is_capturing_while_a_graph_is(self):
        stream = torch.Stream("openreg")
        assert stream.is_capturing() is False
        with stream, torch.accelerator.Graph():
            assert stream.is_capturing() is True
        assert stream.is_capturing() is False

    def test_a_stream_that_does_not_exist_is_refused(self):
        stream = torch.Stream(stream_id=38, device_index=1, device_type=20)
        for use in (
            stream.query,
            stream.synchronize,
            stream.is_capturing,
            lambda: stream.native_handle,
            lambda: torch.Event("openreg").record(stream),
            lambda: torch.accelerator.set_stream(stream),
        ):
            with pytest.raises(RuntimeError, match="no stream 38 on openreg:1"):
                use()
        assert torch.accelerator.current_stream(1).stream_id == 0


class TestEvents:
    @pytest.mark.proves(
        "guard.record",
        "guard.queryEvent",
        "guard.synchronizeEvent",
        "checklist.record",
    )
    @pytest.mark.queued
    def test_an_event_is_recorded_asked_and_waited_for(self):
        stream, gate = torch.Stream("openreg:1"), openreg.testing.Gate()
        event = torch.Event("openreg")
        assert event.query()  # never recorded
        event.synchronize()
        gate.hold(stream)
        event.record(stream)
        assert event.device == torch.device("openreg:1")
        assert not event.query()
        gate.open()
        event.synchronize()
        assert event.query()

    @pytest.mark.proves("guard.elapsedTime")
    def test_the_time_between_two_events_is_not_negative(self):
        start, end = (
            torch.Event("openreg", enable_timing=True) for _ in range(2)
        )
        start.record()
        torch.ones(1000, device="openreg").sum()
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) >= 0

    @pytest.mark.proves("guard.destroyEvent")
    def test_an_event_is_given_back_with_its_last_user(self):
        event = torch.Event("openreg")
        event.record()
        handle = ctypes.c_void_p(event.event_id)
        assert d.library.orEventQuery(handle) in (0, 11)  # or not ready
        del event
        with d.refused("orErrorInvalidResourceHandle", "not an event"):
            d.call("orEventQuery", handle)


class TestFutures:
    """torch.futures runs its callbacks on streams of the guard's pool."""

    @pytest.mark.proves("guard.getStreamFromGlobalPool")
    def test_a_futures_callback_runs_on_a_stream_of_the_pool(self):
        seen = []

        def callback(done):
            seen.append(torch.accelerator.current_stream())
            return done.value() + 1

        future: torch.futures.Future[Any] = torch.futures.Future(
            devices=["openreg:0"]
        )
        answer = future.then(callback)
        future.set_result(torch.ones(3, device="openreg"))
        assert answer.wait().tolist() == [2, 2, 2]
        (stream,) = seen
        assert stream.device == torch.device("openreg:0")
        assert stream.stream_id != 0
        assert torch.accelerator.current_stream().stream_id == 0

    @pytest.mark.proves("guard.recordDataPtrOnStream")
    @pytest.mark.queued
    def test_a_futures_value_is_noted_for_the_stream_that_waits(self):
        gate = openreg.testing.Gate()

        def callback(done):
            gate.hold()
            return done.value() + 1  # on the callback's stream, and to come

        future: torch.futures.Future[Any] = torch.futures.Future(
            devices=["openreg:0"]
        )
        answer = future.then(callback)
        future.set_result(torch.ones(5000, device="openreg"))
        result = answer.value()
        del future
        # The value is free, and the callback's stream has not read it yet.
        other = torch.full((5000,), 7.0, device="openreg")
        gate.open()
        answer.wait()
        assert result.tolist() == [2] * 5000
        assert other.tolist() == [7] * 5000
