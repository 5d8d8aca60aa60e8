"""The rows of the chapters on streams and events."""

import re
import sys

import pytest
import torch

import regions
from tables import stream

TESTS = regions.ROOT / "backend" / "tests"


def test_the_modes_are_those_that_the_device_reads() -> None:
    source = (regions.ROOT / "backend" / "device" / "config.cpp").read_text()
    (listed,) = re.findall(r'"OPENREG_LAUNCH", "([a-z, ]+)"', source)
    assert re.findall(r"auto|async|blocking", listed) == [
        mode for mode, _, _ in stream.LAUNCH_MODES
    ]


@pytest.mark.parametrize("row", stream.LAUNCH_MODES, ids=lambda row: row[0])
def test_every_mode_has_a_test_that_names_it(row) -> None:
    file, function = row[2].split("::")
    text = (TESTS / file).read_text()
    body = text[: text.index(f"def {function}(")]
    assert row[0] in text[len(body) - 900 :]


def test_stream_and_event_calls_have_their_own_tables() -> None:
    assert "orStreamQuery" in stream.stream_calls()
    assert "orEventRecord" not in stream.stream_calls()
    assert "orEventRecord" in stream.event_calls()


def test_the_timeline_shows_a_run_in_its_order() -> None:
    launched = [("launch", name) for name in ("copy", "add", "mul")]
    ran = [
        (phase, name)
        for name in ("copy", "add", "mul")
        for phase in ("start", "end")
    ]
    records = sorted(stream.timeline(), key=lambda record: record.time_ns)
    assert [(x.phase, x.name) for x in records] == [*launched, *ran]
    drawing = stream.stream_timeline()
    assert drawing.count("<rect") == drawing.count("<circle") == 3
    assert "In this order: launch of copy for the first stream;" in drawing
    assert "start of mul on the second stream; end of mul on" in drawing


def test_the_program_that_is_drawn_is_the_one_that_is_shown() -> None:
    page = (regions.ROOT / "book" / "chapters" / "event.md").read_text()
    source, drawing = (
        page.index(f"{{generated}} stream.{name}")
        for name in ("timeline_source", "stream_timeline")
    )
    assert source < drawing
    assert "second.wait_stream(first)" in stream.timeline_source()


@pytest.mark.parametrize("kind", ["Stream", "Event"])
def test_the_methods_are_those_that_python_has(kind: str) -> None:
    rows = {"Stream": stream.STREAM_METHODS, "Event": stream.EVENT_METHODS}
    public = dir(torch.openreg.Stream if kind == "Stream" else torch.Event)
    listed = {name.partition(".")[2] for name in rows[kind] if "." in name}
    assert listed == {name for name in public if not name.startswith("_")}


def test_the_functions_are_those_of_the_module() -> None:
    rows = [*stream.STREAM_METHODS, *stream.EVENT_METHODS]
    module = sys.modules["torch_openreg.openreg.streams"]
    assert {name for name in rows if "." not in name} == set(module.__all__)


def test_each_method_has_a_test_that_says_its_name() -> None:
    rows = {**stream.STREAM_METHODS, **stream.EVENT_METHODS}
    for name, (_, test) in rows.items():
        file, function = test.split("::")
        text = (TESTS / file).read_text()
        start = text.index(f"def {function}(")
        # The parameters of a test stand above it.
        body = text[max(0, start - 500) : text.find("\n\n\n", start)]
        assert name.rpartition(".")[2] in body, name
