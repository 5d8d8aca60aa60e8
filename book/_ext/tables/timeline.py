"""Drawings of what ran: of a profile, and of what a graph holds."""

import re
from collections import defaultdict
from collections.abc import Hashable
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from rows import load
from tables.common import drawing


class Box(NamedTuple):
    """Something that a lane did, from one time to another."""

    begin: float
    end: float
    lane: Hashable
    name: str


Arrows = list[tuple[Box, Box]]


def program(name: str) -> str:
    return f"```python\n{load('timeline')[name]}```\n"


def ran(name: str, result: str) -> tuple[list[str], Any]:
    """The names of a program's streams, and what it calls `result`."""
    names: dict[str, Any] = {}
    exec(load("timeline")[name], names)
    streams = [x for x in names if isinstance(names[x], torch.Stream)]
    return streams, names[result]


def of_profile(name: str) -> str:
    """What a function launched, and what came of it."""
    streams, run = ran(name, "run")
    flows = defaultdict(list)
    both = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=both) as found:
        run()
    for event in found.events():
        lane = event.device_index, event.device_resource_id
        time = event.time_range.start, event.time_range.end
        flows[event.flow_id].append(Box(*time, lane, event.name))
    arrows = [(min(x), max(x)) for flow, x in flows.items() if flow]
    boxes = [box for arrow in arrows for box in arrow]
    return timeline(["host", *streams], boxes, arrows)


def of_graph(name: str) -> str:
    """What a graph holds, in the order in which it runs."""
    streams, graph = ran(name, "graph")
    graph.enable_debug_mode()
    with NamedTemporaryFile("r") as file:
        graph.debug_dump(file.name)
        text = file.read()
    nodes = re.findall(r'label="(.*)\\nstream (\d+)"', text)
    boxes = [Box(i, i + 0.5, *node[::-1]) for i, node in enumerate(nodes)]
    edges = re.findall(r"(\d+) -> (\d+);", text)
    arrows = [(boxes[int(one)], boxes[int(other)]) for one, other in edges]
    return timeline(streams, boxes, arrows)


def timeline(names: list[str], boxes: list[Box], arrows: Arrows) -> str:
    """A column a lane, time downwards: in order, not to scale."""
    lanes = dict.fromkeys(x.lane for x in sorted(boxes))
    title = dict(zip(lanes, names, strict=True))
    times = sorted({time for x in boxes for time in x[:2]})
    step = 368 / len(names)
    wide = step - 14
    left = {lane: 8 + step * i for i, lane in enumerate(lanes)}
    y = {time: 28 + 22 * i for i, time in enumerate(times)}
    text = []
    for one, other in arrows:
        x, to = left[one.lane], left[other.lane]
        path = f"M{x + wide / 2:g} {y[one.end]}V{y[other.begin]}m-4-6 4 6 4-6"
        if x != to:
            way = 1 if x < to else -1
            x, to = (x + wide, to) if x < to else (x, to + wide)
            middle, low = (x + to) / 2, y[other.begin] + 11
            high = (y[one.begin] + y[one.end]) / 2
            path = (
                f"M{x:g} {high:g}C{middle:g} {high:g} {middle:g} {low} "
                f"{to:g} {low}m{-6 * way}-4 {6 * way} 4 {-6 * way} 4"
            )
        text.append(f'<path d="{path}"/>')
    for begin, end, lane, name in boxes:
        word = name.removeprefix("aten::").partition(" (")[0]
        x, top, high = left[lane], y[begin], y[end] - y[begin]
        text.append(
            f'<rect x="{x:g}" y="{top}" width="{wide:g}" height="{high}"/>'
            f'<text class="mid" x="{x + wide / 2:g}" '
            f'y="{top + high / 2 + 5:g}">{word}</text>'
        )
    for lane, name in title.items():
        x = left[lane] + wide / 2
        text.append(f'<text class="key mid" x="{x:g}" y="16">{name}</text>')
    said = sorted(
        (time, f"{x.name} {word} on {title[x.lane]}")
        for x in boxes
        for time, word in ((x.begin, "begins"), (x.end, "ends"))
    )
    label = "; ".join(word for _, word in said)
    return drawing(f"In this order: {label}.", 30 + 22 * len(times), text)
