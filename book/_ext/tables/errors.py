"""The tables of book/chapters/errors.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table
from tables.emulator import device_error_names, device_library

RUNTIME_ERROR = "RuntimeError"
ACCELERATOR_ERROR = "torch.AcceleratorError"


class DeviceError(NamedTuple):
    twin: str  # the code of the CUDA runtime, or words
    exception: str  # what raise_error makes of it, or words
    test: str  # file::function in backend/tests; it expects the code


DEVICE_ERRORS = {
    "orErrorInvalidValue": DeviceError(
        "cudaErrorInvalidValue",
        RUNTIME_ERROR,
        "test_device_memory.py::test_null_is_refused",
    ),
    "orErrorMemoryAllocation": DeviceError(
        "cudaErrorMemoryAllocation",
        "torch.OutOfMemoryError",
        "test_device_memory.py::test_capacity_is_real_and_comes_back",
    ),
    "orErrorInvalidConfiguration": DeviceError(
        "none: CUDA reads a malformed variable as it likes",
        RUNTIME_ERROR,
        "test_device.py::test_malformed_values_are_refused",
    ),
    "orErrorForkedProcess": DeviceError(
        "cudaErrorInitializationError",
        RUNTIME_ERROR,
        "test_device_fault.py::test_child_of_a_user_is_refused_by_every_call",
    ),
    "orErrorInvalidDevice": DeviceError(
        "cudaErrorInvalidDevice",
        RUNTIME_ERROR,
        "test_device.py::test_index_out_of_range_changes_nothing",
    ),
    "orErrorInvalidDevicePointer": DeviceError(
        "cudaErrorInvalidDevicePointer",
        RUNTIME_ERROR,
        "test_errors.py::"
        "test_wrong_pointers_are_refused_and_the_device_goes_on",
    ),
    "orErrorInvalidMemcpyDirection": DeviceError(
        "cudaErrorInvalidMemcpyDirection",
        RUNTIME_ERROR,
        "test_device_memory.py::test_wrong_kind_is_refused_and_moves_nothing",
    ),
    "orErrorInvalidResourceHandle": DeviceError(
        "cudaErrorInvalidResourceHandle",
        RUNTIME_ERROR,
        "test_errors.py::"
        "test_wrong_pointers_are_refused_and_the_device_goes_on",
    ),
    "orErrorLaunchFailure": DeviceError(
        "cudaErrorLaunchFailure",
        ACCELERATOR_ERROR,
        "test_device.py::"
        "test_kernel_that_fails_at_the_call_is_a_launch_failure_and_is_released",
    ),
    "orErrorDeviceFailed": DeviceError(
        "cudaErrorAssert",
        ACCELERATOR_ERROR,
        "test_errors.py::test_failed_device_refuses_work_until_it_is_reset",
    ),
    "orErrorNotReady": DeviceError(
        "cudaErrorNotReady",
        "none: `query()` returns False, or raises code 10 once the device "
        "has failed",
        "test_device_event.py::"
        "test_elapsed_time_of_a_pending_record_is_not_ready",
    ),
    "orErrorNotPermitted": DeviceError(
        "cudaErrorNotPermitted",
        RUNTIME_ERROR,
        "test_device_stream.py::test_turn_is_ended_by_who_holds_it",
    ),
    "orErrorInitializationError": DeviceError(
        "cudaErrorInitializationError",
        RUNTIME_ERROR,
        "test_memory.py::"
        "test_the_import_reserves_no_addresses_and_the_first_use_may_be_repeated",
    ),
}


def _quoted(text: str) -> str:
    return text if " " in text else f"`{text}`"


def device_errors() -> str:
    """Every error of the device, with its phrase from the library."""
    library = device_library()
    return table(
        (
            *("Code", "Name", "`orGetErrorString`", "CUDA twin"),
            *("In Python", "Test"),
        ),
        (
            (
                str(code),
                f"`{name}`",
                library.orGetErrorString(code).decode(),
                _quoted(DEVICE_ERRORS[name].twin),
                _quoted(DEVICE_ERRORS[name].exception),
                f"`{DEVICE_ERRORS[name].test}`",
            )
            for code, name in enumerate(device_error_names())
            if code != 0
        ),
    )


class ErrorTime(NamedTuple):
    error: str
    auto_default: str  # in `auto`, on a default stream with nothing pending
    auto_other: str  # in `auto`, where the work is queued
    in_async: str
    in_blocking: str
    raised: str
    test: str


CALL, LATER = "at the call", "later"
ERROR_TIMES = [
    ErrorTime(
        "Arguments: shapes, dtypes, devices, dimensions",
        *(CALL, CALL, CALL, CALL),
        "as on the CPU",
        "test_errors.py::test_error_of_the_arguments_always_comes_at_the_call",
    ),
    ErrorTime(
        "The device is full",
        *(CALL, CALL, CALL, CALL),
        "`torch.OutOfMemoryError`",
        "test_errors.py::test_full_device_says_so_at_the_call",
    ),
    ErrorTime(
        "Values, in a kernel that takes its stream's turn: "
        "the alias kernel, random operators, results of unknown shape",
        *(CALL, CALL, CALL, CALL),
        "as on the CPU",
        "test_errors.py::test_kernel_that_takes_its_turn_raises_at_the_call",
    ),
    ErrorTime(
        "Values, in a kernel that can be queued: `gather`, `index_select`, "
        "`embedding`",
        *(CALL, LATER, LATER, CALL),
        "as on the CPU; later, `torch.AcceleratorError`",
        "test_errors.py::test_error_is_the_callers_where_work_runs_at_the_call",
    ),
    ErrorTime(
        "Any work for a device that has failed",
        *(CALL, CALL, CALL, "never"),
        "`torch.AcceleratorError`",
        "test_errors.py::test_failed_device_refuses_work_until_it_is_reset",
    ),
]


def error_times() -> str:
    """When each kind of error is raised, in each launch mode."""
    return table(
        (
            *("Error", "`auto`, idle default stream"),
            *("`auto`, queued", "`async`", "`blocking`", "Raised as", "Test"),
        ),
        ((*row[:-1], f"`{row.test}`") for row in ERROR_TIMES),
    )
