"""PyTorch's operator database on the device: one sample of each entry.

`nox -s ops` asks the whole of it; sweep_operators.py is its program.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch

import operators_known
import sweep_compiled
import sweep_operators
from _fresh import prints, without_kernel
from _operators import ENTRIES, KINDS, applies, check, faults
from operators_known import KNOWN, Known, Question, stale, unexplained


def entries(kind: str) -> list[str]:
    return [n for n, op in ENTRIES.items() if applies(op, torch.float32, kind)]


@pytest.mark.parametrize("name", entries("forward"))
def test_the_first_sample_comes_out_as_on_the_cpu(name) -> None:
    calls, found = check(name, "float32", "forward", 1)
    assert calls == 1
    assert unexplained(Question(name, "float32", "forward"), found) == []


@pytest.mark.parametrize("name", entries("in-place"))
def test_the_first_sample_in_place_comes_out_as_on_the_cpu(name) -> None:
    calls, found = check(name, "float32", "in-place", 1)
    assert calls == 1
    assert unexplained(Question(name, "float32", "in-place"), found) == []


def on_device(x: torch.Tensor) -> bool:
    return x.device.type == "openreg"


def warn(x: torch.Tensor) -> torch.Tensor:
    if on_device(x):
        warnings.warn("slow", UserWarning, stacklevel=1)
    return x


def refuse(x: torch.Tensor) -> torch.Tensor:
    if on_device(x):
        raise ValueError("no")
    return x


# Each is wrong on the device, and only there.
PLANTED = {
    "result 0: value": lambda x: x + on_device(x) * 1e-3,
    "result 0: dtype": lambda x: x.double() if on_device(x) else x,
    "result 0: shape": lambda x: x[0] if on_device(x) else x,
    "result 0: strides": lambda x: (
        (x.t().clone(memory_format=torch.contiguous_format)).t()
        if on_device(x)
        else x.clone()
    ),
    "device: a result is elsewhere": lambda x: x.cpu(),
    "result 0: requires_grad": lambda x: x.requires_grad_(on_device(x)),
    "argument 0: value": lambda x: x.add_(on_device(x)),
    "results: 2, not 1": lambda x: [x, x] if on_device(x) else x,
    "sharing": lambda x: x.clone() if on_device(x) else x.view(2, 3),
    "warnings: ['UserWarning: slow']": warn,
    "error: ValueError: no -- the CPU's is: none": refuse,
    "generator: another state": lambda x: x if on_device(x) else x.normal_(),
    "generator: the CPU's has moved": lambda x: torch.rand(2) * on_device(x),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_comparison_finds_a_fault_that_is_planted(fault) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    found = list(faults(lambda x: PLANTED[fault](x), x))
    assert any(line.startswith(fault) for line in found), found
    assert list(faults(torch.sin, x)) == []


@pytest.mark.one_mode
def test_the_list_names_what_there_is() -> None:
    for known in KNOWN:
        questions = [
            Question(name, dtype, kind)
            for name in ENTRIES
            for dtype in ("float32", "bfloat16", "complex64", "int64", "bool")
            for kind in KINDS + sweep_compiled.KINDS
        ]
        assert any(known.covers(question) for question in questions), known
        assert known.reason.endswith("."), known


def test_a_line_of_the_list_must_be_needed(monkeypatch) -> None:
    line = Known("sin", "forward", "all", "value", "A reason.")
    monkeypatch.setattr(operators_known, "KNOWN", [line])
    asked = Question("sin", "float32", "forward")
    other = Question("cos", "float32", "forward")
    more = Question("sin", "float64", "forward")
    assert stale({asked: ["result 0: value: 1"]}, [asked, other]) == []
    assert stale({asked: []}, [asked, other]) == [line]
    assert stale({asked: []}, [asked, more]) == []
    assert stale({other: []}, [other]) == []  # a sweep that it is not of
    assert stale({asked: [], more: ["value"]}, [asked, more]) == []
    assert unexplained(asked, ["value: 1", "dtype: 2"]) == ["dtype: 2"]
    assert unexplained(other, ["value: 1"]) == ["value: 1"]


ANSWERS = """
import json, os, signal, sys, time
for line in sys.stdin:
    operator, *_ = question = json.loads(line)
    if operator == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if operator == "hangs":
        time.sleep(600)
    print(json.dumps({"question": question, "faults": []}), flush=True)
    if operator == "corrupts":
        os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.one_mode
def test_a_crash_or_a_hang_costs_one_answer_of_the_sweep(monkeypatch) -> None:
    line = Known("corrupts", "forward", "all", "crash", "A reason.")
    monkeypatch.setattr(operators_known, "KNOWN", [line])
    worker = sweep_operators.Worker(samples=1)
    worker.command = [sys.executable, "-S", "-c", ANSWERS]
    found = [
        worker.ask(Question(name, "float32", "forward"), seconds)["faults"]
        for name, seconds in [
            ("sin", 60),
            ("crashes", 60),
            ("cos", 60),
            ("hangs", 1),
            ("corrupts", 60),
            ("tan", 60),
        ]
    ]
    worker.close()
    assert found == [[], ["crash -11"], [], ["crash -9"], ["crash -11"], []]


@pytest.mark.one_mode
def test_a_sweep_that_was_stopped_keeps_its_answers(tmp_path) -> None:
    file = tmp_path / "answers.jsonl"
    assert sweep_operators.read(file) == {}
    question = Question("sin", "float32", "forward")
    answer = {"question": list(question), "calls": 1, "faults": []}
    file.write_text(json.dumps(answer) + '\n{"question": ["cos", "fl')
    assert sweep_operators.read(file) == {question: answer}
    with file.open("a") as more:
        more.write(json.dumps({**answer, "question": ["cos", "bool", "out"]}))
        more.write("\n")
    assert len(sweep_operators.read(file)) == 2


@pytest.mark.one_mode
def test_the_sweep_reports_what_the_list_does_not_explain(capsys) -> None:
    question = Question("sin", "float32", "forward")
    answer = {"question": question, "calls": 2, "faults": ["value: 1"]}
    assert sweep_operators.report({question: answer}, whole=True) == 1
    assert "sin float32 forward: value: 1\n" in capsys.readouterr().out
    assert (
        sweep_operators.report({question: {**answer, "faults": []}}, True) == 0
    )


ENDS = """
import os, signal, sys
import torch
sys.path.insert(0, sys.argv[1])
import sweep_ends

library = torch.library.Library("sweep", "DEF")
library.define("ends(Tensor x) -> Tensor")
library.impl(
    "ends",
    lambda x: os.kill(os.getpid(), signal.SIGSEGV),
    "CompositeExplicitAutograd",
)

for name in ("sweep::ends", "aten::choose_qparams_optimized"):
    print(sweep_ends.examine(f"{name}.default"))
"""


@pytest.mark.one_mode
def test_the_sweep_finds_the_calls_that_end_the_process() -> None:
    folder = str(Path(__file__).parent)
    mended = prints(ENDS, folder).splitlines()
    # What has no kernel of ours runs one that follows a device pointer.
    ours = "choose_qparams_optimized"
    broken = prints(ENDS, folder, **without_kernel(ours)).splitlines()
    both = "'sweep::ends.default, call 0: SIGSEGV; on the CPU, SIGSEGV'"
    assert mended[0].startswith(f"(3, [{both}, ")
    assert mended == [broken[0], "(24, [])"]
    fault = f"'aten::{ours}.default, call 0: SIGSEGV; a fault'"
    assert broken[1].startswith(f"(3, [{fault}, ")
