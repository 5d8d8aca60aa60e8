"""The conformance kit: what it says of three devices, and of planted faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import planted
from _fresh import library, prints
from _python import AUTOLOAD
from planted import ALONE, CONFORM, LONG
from torch_device_kit import asking
from torch_device_kit.conformance import interfaces, known, report, run
from torch_device_kit.conformance.groups import Group
from torch_device_kit.conformance.known import Declared, Known, Question
from torch_device_kit.doctor import CannotBegin

pytestmark = pytest.mark.one_mode

TESTS = Path(__file__).parent
KIT = TESTS.parent / "kit"
NO_BACKEND: dict[str, Any] = {AUTOLOAD: "0"}

RECORD = TESTS.parents[1] / "book" / "rows" / "conformance_planted.toml"
# What stands before this line is written by hand.
PLANTED_BEGIN = "\n# What the last run has found.\n"
OURS = [
    row for row in interfaces.rows("openreg") if row.kind in interfaces.OURS
]

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


OTHER_NUMBERS = f"""
import sys
sys.path[:0] = {[str(KIT), str(TESTS)]!r}
import torch, planted
seed = torch.openreg.manual_seed_all
torch.openreg.manual_seed_all = lambda number: seed(number + 1)
planted.replace("sin", torch.cos)
from torch_device_kit.conformance import compare, database
assert not compare.device().draws_as_cpu
for name in sys.argv[1:]:
    kind = "gradient" if name.startswith("nn.") else "forward"
    print(name, *database.check(name, "float32", kind, 3)[1])
q = torch.ones(1, 1, 2, 8)
for dropout in 0.5, 0.0:  # either way it is an operator that may draw
    with compare.Draws() as draws:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, None, dropout)
    print(draws.noted)
"""


@pytest.mark.proves("conform-other-numbers")
def test_a_device_may_draw_other_numbers_than_the_cpu() -> None:
    """The database puts the states back, so that no generator has moved."""
    names = ["randn", "uniform", "bernoulli", "nn.functional.dropout"]
    said = prints(OTHER_NUMBERS, *names, "sin").splitlines()
    assert said[-7:-3] == names  # a warning stands before them
    assert said[-3].startswith("sin result 0: value: ")
    assert said[-2:] == ["True", "False"]


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
every = groups.every("openreg", "planted")
checks = {{kind: group.check for group in every for kind in group.kinds}}
judge = run.Judge("openreg", "planted", 20.0, 20, checks)
for name, (faults, rows) in json.loads(sys.argv[2]).items():
    os.environ["FAULT"] = " ".join(faults)
    file = pathlib.Path(sys.argv[1]) / name
    file.write_text("{{}}\\n")
    asked = [row.split() for row in rows]
    asked = [row if len(row) == 3 else [row[0], "", row[1]] for row in asked]
    rows = [Question(*row) for row in asked]
    run.collect(judge, rows, file, Declared(), 2)
"""
Found = dict[str, list[str]]


def with_faults(
    folder: Path, asked: dict[str, tuple[list[str], list[str]]]
) -> dict[str, Found]:
    """Of each run, by its faults and rows, what the rows say."""
    driver = library(TESTS / "planted.cpp")
    given = json.dumps(asked)
    prints(PLANTED, str(folder), given, **NO_BACKEND, PLANTED_DRIVER=driver)
    return {
        name: {
            str(row): a["faults"]
            for row, a in run.read(folder / name)[1].items()
        }
        for name in asked
    }


def blocks(found: Found) -> list[str]:
    """Rows of the book's table: each fault, its row, and what that says."""
    made = []
    for name, row in CONFORM.items():
        if row in found:
            what = (getattr(planted, name).__doc__ or "").partition("\n")[0]
            says = ", ".join(dict.fromkeys(map(known.head, found[row])))
            told = {"what": what, "row": row, "says": says}
            lines = (f"{key} = {json.dumps(told[key])}\n" for key in told)
            made.append("".join(["\n[[planted]]\n", *lines]))
    return made


@pytest.mark.proves("conform-planted")
def test_planted_faults_are_found_as_recorded(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """If not: nox -s accept, and read what changed."""
    accepts = pytestconfig.getoption("accept")
    alone = [*ALONE, *LONG] if accepts else [*ALONE]
    together = [name for name in CONFORM if name not in (*ALONE, *LONG)]
    runs = {name: ([name], [CONFORM[name]]) for name in alone}
    runs["all"] = (together, [CONFORM[name] for name in together])
    found: Found = {}
    for answers in with_faults(tmp_path, runs).values():
        found |= answers
    assert len(found) == len(alone) + len(together)
    assert all(found.values()), found
    kept, rows = RECORD.read_text("utf-8"), blocks(found)
    if accepts:
        top = kept.partition(PLANTED_BEGIN)[0]
        RECORD.write_text("".join([top, PLANTED_BEGIN, *rows]), "utf-8")
    assert kept.count("[[planted]]") == len(CONFORM)
    assert not [row for row in rows if row not in kept]


@pytest.mark.stress
def test_each_planted_fault_alone(tmp_path: Path) -> None:
    quick = [row for name, row in CONFORM.items() if name != "kernel_hangs"]
    runs: dict[str, Any] = {"none": ([], [*CONFORM.values()])}
    for name, row in CONFORM.items():
        runs[name] = ([name], [*dict.fromkeys([*quick, row])])
    found = with_faults(tmp_path, runs)
    assert not any(found.pop("none").values())
    for name, answers in found.items():
        assert answers.pop(CONFORM[name]), name
        assert not any(answers.values()), (name, answers)


@pytest.mark.proves("conformance.*")
@pytest.mark.parametrize("row", OURS, ids=str)
def test_what_no_database_has_is_right(row: Question) -> None:
    backend = asking.Backend("openreg", "torch_openreg", 0)
    assert interfaces.check(backend, *row, 1) == (1, [])
