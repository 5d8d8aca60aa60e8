"""The tables of book/chapters/emulator.md: the device's C API."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import NamedTuple

from tables.common import ROOT, first_sentence, table
from tables.headers import as_prose, entries

READS = ("backend/device/openreg.h",)

DEVICE_HEADER = ROOT / "backend" / "device" / "openreg.h"


class DeviceCall(NamedTuple):
    names: list[str]
    meaning: str  # the comment's first sentence
    twins: list[str]  # of the CUDA runtime; empty where there is none
    differs: str


def device_calls() -> list[DeviceCall]:
    """The calls, with those together that share a comment."""
    calls = []
    for entry in entries(DEVICE_HEADER.read_text("utf-8")):
        names = re.findall(r"\b(or[A-Z]\w+)\(", "\n".join(entry.declared))
        if not names:
            continue
        said = re.fullmatch(
            r"(.+?) Twin: ([\w, ]+)\.(?: Differs: (.+)\.)?", entry.comment, re.S
        )
        assert said, f"{names[0]}: its comment ends with no twin: Twin: none."
        twins = [] if said[2] == "none" else said[2].split(", ")
        meaning = first_sentence(said[1])
        calls.append(DeviceCall(names, meaning, twins, said[3] or ""))
    return calls


# A call, and the test in backend/tests that provokes it.
DEVICE_TESTS = {
    "orGetErrorName": "test_device.py::test_errors_have_names_and_meanings",
    "orGetErrorString": "test_device.py::test_errors_have_names_and_meanings",
    "orGetLastError": "test_device.py::test_last_error_stays_until_it_is_taken",
    "orPeekAtLastError": "test_device.py::"
    "test_last_error_stays_until_it_is_taken",
    "orGetErrorDetail": "test_device.py::"
    "test_last_error_stays_until_it_is_taken",
    "orGetDeviceCount": "test_device.py::"
    "test_device_ranges_are_contiguous_and_apart_from_the_kernels",
    "orGetDevice": "test_device.py::test_current_device_is_the_threads_own",
    "orSetDevice": "test_device.py::test_index_out_of_range_changes_nothing",
    "orGetDeviceProperties": "test_device.py::test_properties",
    "orDeviceSynchronize": "test_device.py::"
    "test_synchronize_waits_for_the_current_device_alone",
    "orGetAddressSpace": "test_device.py::"
    "test_device_ranges_are_contiguous_and_apart_from_the_kernels",
    "orMalloc": "test_device_memory.py::test_capacity_is_real_and_comes_back",
    "orFree": "test_device_memory.py::test_double_free_is_refused",
    "orMallocHost": "test_device_memory.py::"
    "test_only_live_pinned_blocks_can_be_freed",
    "orFreeHost": "test_device_memory.py::"
    "test_only_live_pinned_blocks_can_be_freed",
    "orMemGetInfo": "test_device_memory.py::"
    "test_blocks_are_whole_pages_and_start_as_zeros",
    "orPointerGetAttributes": "test_device_memory.py::"
    "test_interior_pointers_find_their_block",
    "orMemcpy": "test_device_memory.py::test_every_kind_copies",
    "orMemcpyPeer": "test_device_memory.py::"
    "test_peer_copy_checks_whose_the_pointers_are",
    "orMemset": "test_device_memory.py::test_interior_pointers_can_be_copied",
    "orLaunchKernel": "test_device.py::"
    "test_kernel_works_at_a_constant_distance",
    "orDeviceGetDefaultStream": "test_device.py::test_default_streams_differ",
    "orExplainFault": "test_device_fault.py::"
    "test_fault_in_a_block_is_explained",
    "orIpcGetMemHandle": "test_sharing_device.py::"
    "test_only_the_start_of_a_live_block_has_a_handle",
    "orIpcOpenMemHandle": "test_sharing_device.py::"
    "test_opening_again_gives_the_same_addresses_until_the_last_close",
    "orIpcCloseMemHandle": "test_sharing_device.py::"
    "test_opening_again_gives_the_same_addresses_until_the_last_close",
    "orDeviceReset": "test_device_stream.py::"
    "test_queued_failure_is_the_devices_until_reset",
    "orMemcpyAsync": "test_device_stream.py::"
    "test_every_kind_is_copied_in_order",
    "orMemcpyPeerAsync": "test_device_stream.py::"
    "test_every_kind_is_copied_in_order",
    "orMemsetAsync": "test_device_stream.py::"
    "test_every_kind_is_copied_in_order",
    "orSetKernelError": "test_device_stream.py::"
    "test_kernel_that_fails_in_a_turn_fails_the_call_and_nothing_else",
    "orLaunchHostFunc": "test_device_stream.py::"
    "test_host_function_runs_in_order",
    "orDeviceGetStreamPriorityRange": "test_device_stream.py::"
    "test_priority_out_of_range_is_clamped",
    "orStreamCreateWithPriority": "test_device_stream.py::"
    "test_stream_says_whose_it_is",
    "orStreamDestroy": "test_device_stream.py::"
    "test_destroyed_handle_is_refused_and_not_used_again",
    "orStreamGetDevice": "test_device_stream.py::"
    "test_where_the_answer_should_go_is_needed",
    "orStreamGetPriority": "test_device_stream.py::"
    "test_where_the_answer_should_go_is_needed",
    "orStreamQuery": "test_device_stream.py::"
    "test_query_that_is_not_ready_is_not_an_error",
    "orStreamSynchronize": "test_device_stream.py::"
    "test_synchronize_waits_for_held_work",
    "orStreamWaitEvent": "test_device_event.py::"
    "test_wait_orders_streams_even_of_two_devices",
    "orStreamWaitValue64": "test_device_stream.py::"
    "test_value_is_waited_for_even_when_it_is_there_already",
    "orStreamBeginTurn": "test_device_stream.py::"
    "test_turn_comes_between_earlier_and_later_work",
    "orStreamEndTurn": "test_device_stream.py::"
    "test_turn_is_ended_by_who_holds_it",
    "orStreamRunsInline": "test_device_stream.py::"
    "test_work_launched_in_a_turn_runs_at_once_on_its_thread",
    "orEventCreate": "test_device_event.py::"
    "test_event_is_made_with_flags_that_are_known",
    "orEventDestroy": "test_device_event.py::"
    "test_destroyed_and_foreign_events_are_refused",
    "orEventRecord": "test_device_event.py::"
    "test_record_is_done_when_earlier_work_is",
    "orEventQuery": "test_device_event.py::"
    "test_event_without_a_record_is_done_and_orders_nothing",
    "orEventSynchronize": "test_device_event.py::"
    "test_recording_again_forgets_the_earlier_record",
    "orEventElapsedTime": "test_device_event.py::"
    "test_elapsed_time_is_in_milliseconds",
    "orTraceSubscribe": "test_device_stream.py::"
    "test_work_is_traced_from_launch_to_end",
    "orThreadHasTurn": "test_pool.py::"
    "test_a_thread_knows_whether_it_has_a_turn",
}


def device_api(begin: str = "or") -> str:
    """Calls of the device beside their twins in the CUDA runtime."""
    return table(
        ("Call", "CUDA twin", "What it does", "Test"),
        (
            (
                ", ".join(f"`{name}`" for name in call.names),
                ", ".join(f"`{twin}`" for twin in call.twins) or "none",
                call.meaning,
                f"`{DEVICE_TESTS[call.names[0]]}`",
            )
            for call in device_calls()
            if call.names[0].startswith(begin)
        ),
    )


def device_twins() -> str:
    """Each call, its twin, and what a caller must know of the difference."""
    return table(
        ("Call", "CUDA twin", "In what it differs"),
        (
            (
                ", ".join(f"`{name}`" for name in call.names),
                ", ".join(f"`{twin}`" for twin in call.twins) or "none",
                as_prose(call.differs),
            )
            for call in device_calls()
        ),
    )


def device_library() -> ctypes.CDLL:
    """The libopenreg.so that the installed package uses."""
    from torch_openreg import _C

    library = ctypes.CDLL(str(Path(_C.__file__).parent / "lib/libopenreg.so"))
    for name in ("orGetErrorName", "orGetErrorString", "orGetErrorDetail"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def device_error_names() -> list[str]:
    """The names of all codes, in order, as the library itself gives them."""
    library = device_library()
    names: list[str] = []
    while (name := library.orGetErrorName(len(names)).decode())[:2] == "or":
        names.append(name)
    return names
