"""The tables of book/chapters/guard.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table
from tables.virtuals import default, methods


class GuardMethod(NamedTuple):
    name: str  # in c10/core/impl/DeviceGuardImplInterface.h
    asked_by: str  # who in PyTorch calls it, and what for (torch 2.13)
    region: str
    test: str  # file::function in backend/tests; asks it through PyTorch


GUARD_METHODS = [
    GuardMethod(
        "type",
        "The type that it guards; each type has one guard.",
        "guard-devices",
        "test_guard.py::test_its_own_device_type_is_taken",
    ),
    GuardMethod(
        "exchangeDevice",
        "The constructor of a guard; "
        "`torch.accelerator.device_index()`, at its start.",
        "guard-devices",
        "test_guard.py::test_device_guard_goes_back_after_an_exception",
    ),
    GuardMethod(
        "getDevice",
        "A guard for a device without an index; "
        "`torch.accelerator.current_device_index()`.",
        "guard-devices",
        "test_guard.py::test_the_accelerator_api_goes_through_the_guard",
    ),
    GuardMethod(
        "setDevice",
        "A guard that is moved on; each thread of autograd, at its start; "
        "`torch.accelerator.set_device_index()`.",
        "guard-devices",
        "test_guard.py::test_the_accelerator_api_goes_through_the_guard",
    ),
    GuardMethod(
        "uncheckedSetDevice",
        "The destructor of a guard; `torch.accelerator.device_index()`, at "
        "its end.",
        "guard-unchecked",
        "test_guard.py::test_device_guard_goes_back_after_an_exception",
    ),
    GuardMethod(
        "deviceCount",
        "Autograd, to start a thread for each device.",
        "guard-unchecked",
        "test_guard.py::"
        "test_autograd_asks_for_the_number_of_devices_and_sets_theirs",
    ),
    GuardMethod(
        "getStream",
        "`torch.accelerator.current_stream()`; autograd, for each node of the "
        "graph.",
        "guard-streams",
        "test_guard.py::test_the_current_stream_names_its_device",
    ),
    GuardMethod(
        "exchangeStream",
        "`torch.accelerator.set_stream()`, `with torch.Stream()`; autograd, "
        "to run a node on the stream of its forward pass.",
        "guard-streams",
        "test_guard.py::test_setting_a_stream_sets_its_device",
    ),
    GuardMethod(
        "getDefaultStream",
        "Nobody in Python: C++ that wants the stream a device has from the "
        "start.",
        "guard-streams",
        "test_guard.py::test_the_default_stream_is_the_one_numbered_0",
    ),
    GuardMethod(
        "getStreamFromGlobalPool",
        "`torch.futures.Future`, whose callbacks run on streams of their own.",
        "guard-streams",
        "test_guard.py::test_a_futures_callback_runs_on_a_stream_of_the_pool",
    ),
    GuardMethod(
        "getNewStream",
        "`torch.Stream()`. The device may come without an index; the stream "
        "must have one.",
        "guard-streams",
        "test_guard.py::test_a_new_stream_names_its_device",
    ),
    GuardMethod(
        "getStreamNativeHandle",
        "`torch.Stream.native_handle`, for libraries of the vendor.",
        "guard-stream-state",
        "test_guard.py::test_native_handles_differ",
    ),
    GuardMethod(
        "queryStream",
        "`torch.Stream.query()`.",
        "guard-stream-state",
        "test_guard.py::test_a_stream_is_asked_and_waited_for",
    ),
    GuardMethod(
        "synchronizeStream",
        "`torch.Stream.synchronize()`.",
        "guard-stream-state",
        "test_guard.py::test_a_stream_is_asked_and_waited_for",
    ),
    GuardMethod(
        "isStreamCapturing",
        "`torch.Stream.is_capturing()`.",
        "guard-stream-state",
        "test_guard.py::test_no_stream_is_capturing",
    ),
    GuardMethod(
        "record",
        "`torch.Event.record()`; autograd, where a result changes its stream "
        "or device.",
        "guard-record",
        "test_guard.py::test_an_event_is_recorded_asked_and_waited_for",
    ),
    GuardMethod(
        "destroyEvent",
        "The end of a `torch.Event` that was recorded.",
        "guard-record",
        "test_guard.py::test_an_event_is_given_back_with_its_last_user",
    ),
    GuardMethod(
        "block",
        "`torch.Event.wait()`, `torch.Stream.wait_stream()`; autograd, as "
        "above.",
        "guard-events",
        "test_guard.py::test_backward_crosses_devices",
    ),
    GuardMethod(
        "queryEvent",
        "`torch.Event.query()`, if it was recorded.",
        "guard-events",
        "test_guard.py::test_an_event_is_recorded_asked_and_waited_for",
    ),
    GuardMethod(
        "synchronizeEvent",
        "`torch.Event.synchronize()`, if it was recorded.",
        "guard-events",
        "test_guard.py::test_an_event_is_recorded_asked_and_waited_for",
    ),
    GuardMethod(
        "elapsedTime",
        "`torch.Event.elapsed_time()`, in milliseconds.",
        "guard-events",
        "test_guard.py::test_the_time_between_two_events_is_not_negative",
    ),
    GuardMethod(
        "synchronizeDevice",
        "`torch.accelerator.synchronize()`.",
        "guard-device-wide",
        "test_guard.py::test_synchronize_waits_for_the_device_named",
    ),
    GuardMethod(
        "getDeviceCapability",
        "`torch.accelerator.get_device_capability()`.",
        "guard-device-wide",
        "test_guard.py::test_capability_lists_the_dtypes_that_can_be_copied",
    ),
    GuardMethod(
        "recordDataPtrOnStream",
        "`torch.futures.Future`, for the tensors in its value.",
        "guard-record-stream",
        "test_guard.py::test_a_futures_value_is_noted_for_the_stream_that_waits",
    ),
]


def guard_methods() -> str:
    """Every method of PyTorch's guard interface, as the page explains them."""
    interface = methods("guard")
    return table(
        ("Method", "Who asks", "Left out, it ...", "Test"),
        (
            (
                f"[`{m.name}`](#{m.region})",
                m.asked_by,
                default(interface[m.name]),
                f"`{m.test}`{{.said}}",
            )
            for m in GUARD_METHODS
        ),
    )
