"""The checklist: what PyTorch says while a registration is missing."""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import _rows
import left_out
from _device import PATIENCE
from torch_device_kit import doctor
from torch_device_kit.answers import Answer
from torch_device_kit.asking import Reply
from torch_device_kit.suite import suite

pytestmark = pytest.mark.one_mode

PROGRAM = Path(left_out.__file__)


class Point(NamedTuple):
    """What the trials need of a row of the checklist."""

    name: str
    use: str
    symptom: str
    leaves_out: str  # nothing, where the smallest backend has no such line


POINTS = [
    Point(name, row["use"], row["symptom"], row.get("leaves_out", ""))
    for name, row in _rows.read("checklist").items()
]


def make(trials: list[left_out.Trial]) -> list[str]:
    """What came of each trial, in a process of its own."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(trials),
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers() -> dict[left_out.Trial, str]:
    """Of each row without its line, and with all lines."""
    trials = {
        left_out.Trial(text, point.use): None
        for point in POINTS
        for text in {point.leaves_out, ""}
    }
    return dict(zip(trials, make(list(trials)), strict=True))


# PyTorch's CUDA build registers a parser for every device.
CUDA_BUILD_SAYS = {
    "registerDeviceConfigParserHook": (
        "ValueError: Unrecognized key 'no_such_option' ..."
    )
}


def says(point: Point, text: str) -> bool:
    symptom = point.symptom
    if torch.version.cuda:
        symptom = CUDA_BUILD_SAYS.get(point.name, symptom)
    checker = doctest.OutputChecker()
    return checker.check_output(symptom, text, doctest.ELLIPSIS)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_without_a_registration_pytorch_says_what_the_row_says(
    answers, point
) -> None:
    without = answers[left_out.Trial(point.leaves_out, point.use)]
    assert says(point, without), without
    with_it = answers[left_out.Trial("", point.use)]
    assert says(point, with_it) == (not point.leaves_out), with_it


ASKED = {row.id.partition(".")[2]: row for row in suite("tiny")}


@pytest.mark.proves("doctor-names-what-is-left-out")
@pytest.mark.parametrize(
    "point",
    [
        point
        for point in POINTS
        if point.leaves_out and ASKED[point.name].use == point.use
    ],
    ids=lambda point: point.name,
)
def test_the_doctor_names_the_line_that_is_left_out(answers, point) -> None:
    def state(text: str) -> str:
        row = ASKED[point.name]
        ended = text if text.startswith("ends with") else ""
        answer = Answer(text, (), bool(re.match(r"\w+Error: ", text)))
        if re.match(r"\w+Warning: ", text):  # what it answers is not told
            answer = Answer(row.right, (text,))
        return doctor.judge(row, Reply(answer, ended)).state

    without = answers[left_out.Trial(point.leaves_out, point.use)]
    assert state(without) == doctor.MISSING
    assert state(answers[left_out.Trial("", point.use)]) == doctor.HAS


def test_every_registration_of_the_smallest_backend_has_a_row() -> None:
    source = (left_out.FOLDER / "smallest.cpp").read_text()
    names = left_out.switched(source)[1]
    assert len(names) > 15
    texts = [point.leaves_out for point in POINTS if point.leaves_out]
    lacking = [n for n in names if not any(text in n for text in texts)]
    # The fallback makes an empty tensor, too; the last is for Python.
    assert [re.findall(r'"([\w.]+)', name)[0] for name in lacking] == [
        "empty.memory_format",
        "device_count",
    ]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_a_row_leaves_out_one_line(point: Point) -> None:
    if point.leaves_out in ("", left_out.IMPORT):
        return
    cpp, py = (
        (left_out.FOLDER / f"smallest.{suffix}").read_text()
        for suffix in ("cpp", "py")
    )
    names = left_out.switched(cpp)[1]
    lines = [name for name in names if point.leaves_out in name]
    left = left_out.without(py, point.leaves_out)
    assert len(lines) + (left != left_out.without(py, "")) == 1
