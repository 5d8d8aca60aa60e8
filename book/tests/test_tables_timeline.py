"""The drawings of what ran are those of a run."""

import re

import pytest
from _pages import svg

from tables import timeline


def said(*boxes: tuple[str, str]) -> str:
    """In words, boxes one after the other: what, and in which lane."""
    words = [f"{x} {w} on {y}" for x, y in boxes for w in ("begins", "ends")]
    return f"In this order: {'; '.join(words)}."


def test_work_of_two_streams_runs_as_the_event_says() -> None:
    drawing = svg(timeline.of_profile("event"))
    assert drawing.get("aria-label", "") == said(
        ("orMemcpyAsync", "host"),
        ("orLaunchKernel", "host"),
        ("orLaunchKernel", "host"),
        ("Memcpy HtoD (Pinned -> Device)", "first"),
        ("aten::add.Tensor", "first"),
        ("aten::mul.Tensor", "second"),
    )
    assert "ends on here; aten::add" in timeline.of_profile("stream")
    assert len(drawing.findall("rect")) == 2 * len(drawing.findall("path")) == 6


def test_each_kernel_waits_for_its_copy() -> None:
    label = svg(timeline.of_profile("overlap")).get("aria-label", "")
    before, between, _ = label.split("begins on kernels")
    assert "ends on copies" in before
    assert (before + between).count("ends on copies") == 2


def test_a_graph_runs_in_the_order_of_its_capture() -> None:
    drawing = svg(timeline.of_graph("graph"))
    assert drawing.get("aria-label", "") == said(
        ("aten::add.Tensor", "first"),
        ("aten::mul.Tensor", "second"),
        ("aten::mul.Tensor", "first"),
        ("aten::add.Tensor", "first"),
    )
    assert len(drawing.findall("path")) == 4


def test_an_arrow_leads_from_edge_to_edge() -> None:
    one, two = timeline.Box(0, 3, "a", "one"), timeline.Box(1, 2, "b", "two")
    for arrow in (one, two), (two, one):
        drawing = svg(timeline.timeline(["a", "b"], [one, two], [arrow]))
        left, right = drawing.findall("rect")
        edges = [float(x.get("x", "")) for x in (left, right)]
        edges[0] += float(left.get("width", ""))
        numbers = re.findall(r"[\d.]+", drawing.findall("path")[0].get("d", ""))
        ends = [float(numbers[0]), float(numbers[6])]
        assert ends == pytest.approx(edges if arrow[0] == one else edges[::-1])
