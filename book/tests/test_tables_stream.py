"""The rows of the chapters on streams and events."""

import re
import sys

import pytest
import torch

import regions
from rows import rows
from tables import stream


def test_the_modes_are_those_that_the_device_reads() -> None:
    source = (regions.ROOT / "backend" / "device" / "config.cpp").read_text()
    (listed,) = re.findall(r'"OPENREG_LAUNCH", "([a-z, ]+)"', source)
    assert re.findall(r"auto|async|blocking", listed) == [
        row.key for row in rows("stream.modes")
    ]


def test_the_timeline_shows_a_run_in_its_order() -> None:
    copy = "Memcpy HtoD (Pinned -> Device)"
    names = (copy, "aten::add.Tensor", "aten::mul.Tensor")
    launched = [("launch", name) for name in names]
    ran = [(phase, name) for name in names for phase in ("start", "end")]
    records = sorted(stream.timeline(), key=lambda record: record.time_ns)
    assert [(x.phase, x.name) for x in records] == [*launched, *ran]
    drawing = stream.stream_timeline()
    assert drawing.count("<rect") == drawing.count("<circle") == 3
    assert ">copy<" in drawing
    assert f"launch of {copy} for the first".replace(">", "&gt;") in drawing
    assert "start of aten::mul.Tensor on the second stream; end" in drawing


@pytest.mark.parametrize("kind", ["Stream", "Event"])
def test_the_methods_are_those_that_python_has(kind: str) -> None:
    names = [row.key for row in rows(f"stream.{kind.lower()}s")]
    public = dir(torch.openreg.Stream if kind == "Stream" else torch.Event)
    listed = {name.partition(".")[2] for name in names if "." in name}
    assert listed == {name for name in public if not name.startswith("_")}


def test_the_functions_are_those_of_the_module() -> None:
    names = [r.key for x in ("streams", "events") for r in rows(f"stream.{x}")]
    module = sys.modules["torch_openreg.openreg.streams"]
    assert {name for name in names if "." not in name} == set(module.__all__)
