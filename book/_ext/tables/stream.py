"""The tables of book/chapters/stream.md and event.md."""

from __future__ import annotations

from html import escape

import torch
from torch.openreg.testing import Gate, Record, trace

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


def stream_timeline() -> str:
    """The run above as a drawing: a lane a stream, in order, not to scale."""
    records = sorted(timeline(), key=lambda record: record.time_ns)
    lanes = ["host", *dict.fromkeys(record.stream for record in records)]
    names = ["host", "first stream", "second stream"]
    place = {(x.work, x.phase): 130 + 58 * i for i, x in enumerate(records)}
    text = [
        f'<text x="8" y="{40 + 50 * lane}">{name}</text>'
        f'<path d="M120 {35 + 50 * lane}H670"/>'
        for lane, name in enumerate(names)
    ]
    for record in records:
        x, name = place[record.work, record.phase], escape(record.name)
        if record.phase == "launch":
            text.append(
                f'<circle cx="{x}" cy="35" r="5"/>'
                f'<text x="{x - 14}" y="22">{name}</text>'
            )
        elif record.phase == "start":
            y = 35 + 50 * lanes.index(record.stream)
            width = place[record.work, "end"] - x
            text.append(
                f'<rect x="{x}" y="{y - 14}" width="{width}" height="28"/>'
                f'<text x="{x + 8}" y="{y + 5}">{name}</text>'
            )
    label = "; ".join(f"{x.phase} of {x.name}" for x in records)
    style = (
        "#timeline text{fill:currentColor;font:14px sans-serif}"
        "#timeline path{stroke:currentColor;opacity:.4}"
        "#timeline rect{fill:none;stroke:currentColor}"
        "#timeline circle{fill:currentColor}"
    )
    return (
        "```{raw} html\n"
        f'<div class="drawing"><svg id="timeline" viewBox="0 0 680 160" '
        f'role="img" aria-label="In this order: {escape(label)}.">'
        f"<style>{style}</style>{''.join(text)}</svg></div>\n```\n"
    )
