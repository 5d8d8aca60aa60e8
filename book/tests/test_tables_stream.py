"""The rows of the chapters on streams and events."""

import re
import sys

import pytest
import torch

import regions
from rows import rows
from torch_openreg import openreg


def test_the_modes_are_those_that_the_device_reads() -> None:
    source = (regions.ROOT / "backend" / "device" / "config.cpp").read_text()
    (listed,) = re.findall(r'"OPENREG_LAUNCH", "([a-z, ]+)"', source)
    assert re.findall(r"auto|async|blocking", listed) == [
        row.key for row in rows("stream.modes")
    ]


@pytest.mark.parametrize("kind", ["Stream", "Event"])
def test_the_methods_are_those_that_python_has(kind: str) -> None:
    names = [row.key for row in rows(f"stream.{kind.lower()}s")]
    public = dir(openreg.Stream if kind == "Stream" else torch.Event)
    listed = {name.partition(".")[2] for name in names if "." in name}
    assert listed == {name for name in public if not name.startswith("_")}


def test_the_functions_are_those_of_the_module() -> None:
    names = [r.key for x in ("streams", "events") for r in rows(f"stream.{x}")]
    module = sys.modules["torch_openreg.openreg.streams"]
    assert {name for name in names if "." not in name} == set(module.__all__)
