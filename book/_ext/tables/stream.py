"""The tables of book/chapters/stream.md and event.md."""

from __future__ import annotations

import inspect
from html import escape

import torch
from torch.openreg.testing import Gate, Record, trace

from tables.common import drawing, table
from tables.emulator import device_api

# A mode, what runs where, and the test in backend/tests that shows it.
LAUNCH_MODES = [
    (
        "auto",
        "work for an idle default stream runs at once on the thread that "
        "launches it; all else is queued for the stream's worker",
        "test_device_stream.py::test_mode_says_which_thread_runs_work",
    ),
    (
        "async",
        "all work is queued, as on a real device, except what takes a turn",
        "test_device_stream.py::test_mode_says_which_thread_runs_work",
    ),
    (
        "blocking",
        "every launch returns when its work is done, as with "
        "`CUDA_LAUNCH_BLOCKING=1`; an error is raised by the call to blame",
        "test_device_stream.py::"
        "test_blocking_waits_for_other_threads_and_for_values",
    ),
]


def launch_modes() -> str:
    return table(
        ("`OPENREG_LAUNCH`", "What runs where", "Test"),
        ((f"`{name}`", what, f"`{test}`") for name, what, test in LAUNCH_MODES),
    )


# What Python has, what it does, and the test in backend/tests that calls it.
STREAM_METHODS = {
    "Stream": (
        "a stream of the pool, by device and priority",
        "test_stream.py::test_streams_come_from_a_pool_in_turn",
    ),
    "ExternalStream": (
        "a stream that the C API made",
        "test_stream.py::test_a_stream_of_the_c_api_is_taken_as_it_is",
    ),
    "stream": (
        "a context in which a stream and its device are current",
        "test_stream.py::test_a_stream_switches_the_device_and_both_go_back",
    ),
    "StreamContext": (
        "what `stream` returns",
        "test_stream.py::test_contexts_nest_and_are_used_again",
    ),
    "current_stream": (
        "this thread's current stream of a device",
        "test_stream.py::test_each_thread_has_its_own",
    ),
    "default_stream": (
        "the stream numbered 0",
        "test_stream.py::test_the_default_stream_is_number_0_of_its_device",
    ),
    "set_stream": (
        "makes a stream and its device current",
        "test_stream.py::test_set_stream_sets_its_device_too",
    ),
    "Stream.device": (
        "the device, with its index",
        "test_stream.py::test_a_stream_says_where_it_is",
    ),
    "Stream.device_index": (
        "the device's index",
        "test_stream.py::test_a_stream_says_where_it_is",
    ),
    "Stream.device_type": (
        "the number of the device's type",
        "test_stream.py::test_a_stream_says_where_it_is",
    ),
    "Stream.stream_id": (
        "the number that makes the same stream again",
        "test_stream.py::test_equal_streams_have_equal_hashes",
    ),
    "Stream.native_handle": (
        "the device's own handle",
        "test_stream.py::test_the_handle_is_the_devices",
    ),
    "Stream.priority": (
        "0, or -1 for one that goes first",
        "test_stream.py::test_priorities",
    ),
    "Stream.priority_range": (
        "the least and the greatest priority",
        "test_stream.py::test_priorities",
    ),
    "Stream.query": (
        "whether all work is done",
        "test_stream.py::test_query_and_synchronize",
    ),
    "Stream.synchronize": (
        "the host waits for all work",
        "test_stream.py::test_query_and_synchronize",
    ),
    "Stream.wait_stream": (
        "later work waits for what another stream has now",
        "test_stream.py::test_an_event_orders_them",
    ),
    "Stream.wait_event": (
        "later work waits for an event's latest record",
        "test_stream.py::test_an_event_orders_them",
    ),
    "Stream.record_event": (
        "records an event, a new one by default",
        "test_stream.py::test_an_event_orders_them",
    ),
    "Stream.is_capturing": (
        "False: there are no graphs",
        "test_guard.py::test_no_stream_is_capturing",
    ),
}
EVENT_METHODS = {
    "Event": (
        "an event, for times if you say so",
        "test_event.py::"
        "test_an_event_belongs_to_no_device_until_it_is_recorded",
    ),
    "Event.device": (
        "the device; without an index until the first record",
        "test_event.py::"
        "test_an_event_belongs_to_no_device_until_it_is_recorded",
    ),
    "Event.event_id": (
        "the device's handle, 0 until the first record",
        "test_event.py::"
        "test_an_event_belongs_to_no_device_until_it_is_recorded",
    ),
    "Event.record": (
        "stands for all work that a stream has now",
        "test_event.py::"
        "test_record_takes_the_current_stream_unless_one_is_named",
    ),
    "Event.wait": (
        "a stream's later work waits for the latest record",
        "test_event.py::test_wait_takes_the_current_stream_unless_one_is_named",
    ),
    "Event.query": (
        "whether the latest record is done",
        "test_event.py::test_recorded_again_it_stands_for_the_new_record",
    ),
    "Event.synchronize": (
        "the host waits for the latest record",
        "test_event.py::test_it_stands_for_all_work_before_it_and_none_after",
    ),
    "Event.elapsed_time": (
        "milliseconds to another event's record",
        "test_event.py::test_it_is_that_of_the_stream_in_milliseconds",
    ),
    "Event.from_ipc_handle": (
        "refused: an event stays in its process",
        "test_event.py::test_an_event_is_not_shared_between_processes",
    ),
    "Event.ipc_handle": (
        "refused: an event stays in its process",
        "test_event.py::test_an_event_is_not_shared_between_processes",
    ),
}


def methods(rows: dict[str, tuple[str, str]]) -> str:
    return table(
        ("`torch.openreg.`", "What it is or does", "Test"),
        (
            (f"`{name}`", what, f"`{test}`")
            for name, (what, test) in rows.items()
        ),
    )


def stream_methods() -> str:
    return methods(STREAM_METHODS)


def event_methods() -> str:
    return methods(EVENT_METHODS)


def stream_calls() -> str:
    return device_api("orStream")


def event_calls() -> str:
    return device_api("orEvent")


def timeline() -> list[Record]:
    """What the device tells of two streams that an event orders."""
    first, second, gate = torch.openreg.Stream(), torch.openreg.Stream(), Gate()
    x = torch.ones(4).pin_memory()
    with trace() as records:
        gate.hold(first)
        with torch.openreg.stream(first):
            y = x.to("openreg", non_blocking=True)
            z = y + 1
        second.wait_stream(first)
        with torch.openreg.stream(second):
            w = z * 2
        gate.open()
        torch.openreg.synchronize()
    del w
    return records


def timeline_source() -> str:
    """The program that is drawn."""
    return f"```python\n{inspect.getsource(timeline)}```\n"


def stream_timeline() -> str:
    """The run above as a drawing: a lane a stream, in order, not to scale."""
    records = sorted(timeline(), key=lambda record: record.time_ns)
    lanes = ["host", *dict.fromkeys(record.stream for record in records)]
    names = ["host", "first", "second"]
    place = {(x.work, x.phase): 66 + 36 * i for i, x in enumerate(records)}
    text = [
        f'<text x="4" y="{40 + 50 * lane}">{name}</text>'
        f'<path d="M58 {35 + 50 * lane}H366"/>'
        for lane, name in enumerate(names)
    ]
    for record in records:
        x, name = place[record.work, record.phase], escape(record.name)
        if record.phase == "launch":
            text.append(
                f'<circle cx="{x}" cy="35" r="5"/>'
                f'<text class="mid" x="{x}" y="22">{name}</text>'
            )
        elif record.phase == "start":
            y = 35 + 50 * lanes.index(record.stream)
            width = place[record.work, "end"] - x
            text.append(
                f'<rect x="{x}" y="{y - 14}" width="{width}" height="28"/>'
                f'<text class="mid" x="{x + width / 2:g}" y="{y + 5}">{name}'
                "</text>"
            )
    label = "; ".join(
        f"{x.phase} of {x.name} {'for' if x.phase == 'launch' else 'on'} "
        f"the {names[lanes.index(x.stream)]} stream"
        for x in records
    )
    return drawing(f"In this order: {label}.", 160, text)
