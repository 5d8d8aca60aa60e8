"""The tables of book/chapters/stream.md and event.md."""

import inspect
from html import escape
from typing import Any

import torch as pytorch

from tables.common import drawing
from torch_openreg.openreg.testing import Gate, Record, trace

torch: Any = pytorch  # mypy knows of no torch.openreg


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
        x = place[record.work, record.phase]
        name = "copy" if record.kind == "copy" else record.name
        name = escape(name.removeprefix("aten::"))
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
