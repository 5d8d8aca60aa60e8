"""The tables of book/chapters/stream.md and event.md."""

from __future__ import annotations

from tables.common import table
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
        "all work is queued, as on a real device",
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


def stream_calls() -> str:
    return device_api("orStream")


def event_calls() -> str:
    return device_api("orEvent")
