"""The conformance kit: what it says of three devices, and of planted faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from _fresh import AUTOLOAD, prints
from planted import CONFORM
from torch_device_kit.conformance import known, report, run
from torch_device_kit.conformance.groups import Group
from torch_device_kit.conformance.known import Declared, Known, Question
from torch_device_kit.doctor import CannotBegin

pytestmark = pytest.mark.one_mode

TESTS = Path(__file__).parent
KIT = TESTS.parent / "kit"
NO_BACKEND: dict[str, Any] = {AUTOLOAD: "0"}

SIN = Question("sin", "float32", "forward")
COS = Question("cos", "float32", "forward")


@pytest.mark.proves("conform-declared-exactly")
def test_a_line_of_the_list_must_be_needed() -> None:
    line = Known("sin", "forward", "all", "value", "A reason.")
    declared = Declared([line])
    more = SIN._replace(dtype="float64")
    assert declared.stale({SIN: ["result 0: value: 1"]}, [SIN, COS]) == []
    assert declared.stale({SIN: []}, [SIN, COS]) == [line]
    assert declared.stale({SIN: []}, [SIN, more]) == []
    assert declared.stale({COS: []}, [COS]) == []  # a run that it is not of
    assert declared.stale({SIN: [], more: ["value"]}, [SIN, more]) == []
    assert declared.unexplained(SIN, ["value: 1", "dtype: 2"]) == ["dtype: 2"]
    assert declared.unexplained(COS, ["value: 1"]) == ["value: 1"]


LINES = """
samples = 3
[tolerances]
bfloat16 = [0.1, 0]
[[known]]
names = ["sin", "linalg.*"]
kinds = "forward out"
dtypes = "all"
says = "value"
reason = "%s"
"""


def test_each_name_and_kind_of_a_file_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text(LINES % "A reason.")
    declared = known.read(file)
    assert declared.samples == 3
    assert declared.tolerances == {"bfloat16": (0.1, 0.0)}
    assert [(line.name, line.kind) for line in declared.lines] == [
        ("sin", "forward"),
        ("sin", "out"),
        ("linalg.*", "forward"),
        ("linalg.*", "out"),
    ]
    file.write_text(LINES % " ")
    with pytest.raises(CannotBegin, match=r"for sin, linalg.\* has no reason"):
        known.read(file)


def test_what_is_declared_is_what_was_wrong(tmp_path: Path) -> None:
    said = ["result 0: value: 1.5", "error: TypeError: no -- the CPU's: none"]
    wrong = {
        q._replace(dtype=dtype): said
        for q in (SIN, COS)
        for dtype in ("float32", "bool")
    }
    wrong[Question("same seed", "", "generator")] = ["crash: ends with SIGSEGV"]
    file = tmp_path / "known.toml"
    file.write_text(known.declare(wrong, 1, "A reason."))
    declared = known.read(file)
    assert file.read_text().count("[[known]]") == 3
    assert declared.samples == 1
    assert declared.stale(wrong, wrong) == []
    for question, faults in wrong.items():
        assert declared.unexplained(question, faults) == []
        assert declared.corrupts(question) == (question.kind == "generator")
    assert len(declared.stale({**wrong, SIN: []}, wrong)) == 2


ENDS = f"""
import json, os, pathlib, signal, sys, time
sys.path.insert(0, {str(KIT)!r})
from torch_device_kit.conformance import run
from torch_device_kit.conformance.known import Declared, Question

def check(name, dtype, kind, samples):
    if name == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "hangs":
        time.sleep(600)
    if name == "raises":
        raise ValueError(samples)
    return 1, [name] * (name == "differs")

names = "equal crashes differs hangs raises again".split()
rows = [Question(name, "float32", "forward") for name in names]
file = pathlib.Path(sys.argv[1])
file.write_text("{{}}\\n")
judge = run.Judge("npu", "json", 4.0, 3, {{"forward": check}})
run.collect(judge, rows, file, Declared(), 2)
"""


@pytest.mark.proves("conform-one-row")
def test_a_crash_or_a_hang_costs_one_row(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    prints(ENDS, str(file), **NO_BACKEND)
    found = {q.name: a["faults"] for q, a in run.read(file)[1].items()}
    assert found == {
        "equal": [],
        "crashes": ["crash: ends with SIGSEGV"],
        "differs": ["differs"],
        "hangs": ["hangs"],
        "raises": ["not asked: ValueError(3)"],
        "again": [],
    }


def answers(*rows: tuple[Question, list[str]]) -> run.Answers:
    return {
        question: {"row": list(question), "calls": 1, "faults": faults}
        for question, faults in rows
    }


def write(file: Path, said: run.Answers, **head: Any) -> None:
    facts = {"device": "npu", "torch": "2", "build": "b", "samples": 1}
    lines = [facts | head, *said.values()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_run_that_was_stopped_keeps_its_answers(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    assert run.read(file) == ({}, {})
    said = answers((SIN, []))
    write(file, said)
    with file.open("a") as more:
        more.write('{"row": ["cos", "fl')
    assert run.read(file)[1] == said
    with file.open("a") as more:
        more.write(json.dumps(answers((COS, []))[COS]) + "\n")
    assert len(run.read(file)[1]) == 2


GROUP = Group(
    {"forward": "runs", "gradient": "trains"},
    {"float32": "runs", "float64": "complete"},
    list,
    lambda *_: (0, []),
)


def test_the_report_counts_levels_and_what_the_list_explains() -> None:
    slow = Question("sin", "float64", "gradient")
    said = answers((SIN, ["value: 1"]), (COS, ["value: 2"]), (slow, []))
    line = Known("cos", "forward", "all", "value", "A reason.")
    told = list(report.to_text(said, Declared([line]), [GROUP]))
    assert told[0] == "sin float32 forward: value: 1"
    found = [line.split() for line in told[1:]]
    assert found == [
        ["kind", "rows", "right", "declared", "wrong", "calls"],
        ["forward", "2", "0", "1", "1", "2"],
        ["gradient", "1", "1", "0", "0", "1"],
        ["level", "rows", "right", "declared", "wrong", "calls"],
        ["runs", "2", "0", "1", "1", "2"],
        ["complete", "3", "1", "1", "1", "3"],
    ]


def test_two_runs_are_compared(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    tan, abs_ = SIN._replace(name="tan"), SIN._replace(name="abs")
    write(old, answers((SIN, []), (COS, ["value: 1"]), (tan, ["value: 3"])))
    write(
        new,
        answers(
            (SIN, ["dtype: 1"]), (COS, []), (tan, ["value: 4"]), (abs_, [])
        ),
        torch="3",
    )
    lines, worse = report.compare(old, new)
    assert worse == 1
    assert lines == [
        f"{old}: device npu, torch 2, build b, samples 1",
        f"{new}: device npu, torch 3, build b, samples 1",
        "better: cos float32 forward: value: 1",
        "worse: sin float32 forward: dtype: 1",
        "1 worse, 1 better, 1 same, 1 in the new one alone",
    ]
    assert report.compare(old, old)[1] == 0


PLANTED = f"""
import json, os, pathlib, sys
sys.path[:0] = [{str(KIT)!r}, {str(TESTS)!r}]
import torch
from torch_device_kit.conformance import groups, run
from torch_device_kit.conformance.known import Declared, Question

torch.set_num_threads(1)
os.environ["FAULT"] = sys.argv[1]
checks = {{k: group.check for group in groups.every() for k in group.kinds}}
judge = run.Judge("openreg", "planted", 20.0, 20, checks)
rows = [Question(*row.split()) for row in sys.argv[3:]]
file = pathlib.Path(sys.argv[2])
file.write_text("{{}}\\n")
run.collect(judge, rows, file, Declared(), 2)
"""


def with_faults(file: Path, *faults: str) -> dict[str, list[str]]:
    """What the rows say that are meant for any of the faults.

    One that hangs costs its row the patience, so that row is asked for it.
    """
    rows = [
        row
        for name, (row, _) in CONFORM.items()
        if name != "kernel_hangs" or name in faults
    ]
    prints(PLANTED, " ".join(faults), str(file), *rows, **NO_BACKEND)
    return {str(q): a["faults"] for q, a in run.read(file)[1].items()}


@pytest.mark.proves("conform-planted")
def test_planted_faults_are_found_by_the_rows_meant_for_them(
    tmp_path: Path,
) -> None:
    names = [name for name in CONFORM if name != "kernel_hangs"]
    found = with_faults(tmp_path / "answers", *names)
    assert len(found) == len(names)
    for name in names:
        row, says = CONFORM[name]
        assert any(says in fault for fault in found[row]), (row, found[row])


@pytest.mark.stress
def test_each_planted_fault_alone(tmp_path: Path) -> None:
    assert not any(with_faults(tmp_path / "none").values())
    for fault, (row, says) in CONFORM.items():
        found = with_faults(tmp_path / fault, fault)
        assert any(says in each for each in found.pop(row)), fault
        assert not any(found.values()), fault
