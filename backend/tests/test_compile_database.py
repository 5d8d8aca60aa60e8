"""PyTorch's operator database, compiled: one entry in eight.

`nox -s ops -- --compiled` asks all of it; sweep_compiled.py is its program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

import releases
import sweep_compiled
from sweep_compiled import TOGETHER, Call
from torch_device_kit.conformance.database import ENTRIES, applies
from torch_device_kit.conformance.known import Declared, Known, Question

pytestmark = pytest.mark.one_mode

NAMES = [
    name
    for name, op in ENTRIES.items()
    if applies(op, torch.float32, "compiled")
    and not name.startswith("jiterator")  # which only CUDA has
]


# These make no graph with others, as halves would find out at a price.
ALONE = [["resize_as_"], ["sparse.sampled_addmm"]]
EIGHTH = [name for name in NAMES[::8] if [name] not in ALONE]
GROUPS = ALONE + [
    EIGHTH[at : at + TOGETHER] for at in range(0, len(EIGHTH), TOGETHER)
]


@pytest.mark.proves("compile-database")
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_the_first_samples_come_out_as_in_eager_mode(names):
    found = sweep_compiled.together(tuple(names), "float32", "compiled")
    assert found == dict.fromkeys(names, (1, []))


def test_an_entry_is_asked_with_its_neighbours_and_answers_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of twelve the first and a later one are wrong, and nobody else is."""
    names = list(ENTRIES)[:TOGETHER]
    wrong = {names[0], names[7]}
    asked: list[str] = []

    def alone(name: str, *how: object) -> tuple[int, list[str]]:
        asked.append(name)
        return 1, ["wrong"] * (name in wrong)

    monkeypatch.setattr(sweep_compiled, "alone", alone)
    monkeypatch.setattr(
        sweep_compiled, "agree", lambda names, *how: not wrong & {*names}
    )
    sweep_compiled.together.cache_clear()
    found = {
        name: sweep_compiled.check(name, "float32", "compiled", 1)[1]
        for name in names
    }
    sweep_compiled.together.cache_clear()
    assert found == {n: ["wrong"] * (n in wrong) for n in names}
    assert wrong <= set(asked) < set(names)
    sweep_compiled.check(names[1], "float32", "compiled", 2)
    assert asked[-1] == names[1]


def test_a_graph_of_calls_that_differ_does_not_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asks(name: str, dtype: str) -> Iterator[tuple[Call, torch.Tensor]]:
        wrong = name == "cos"
        yield lambda x: x + torch.compiler.is_compiling() * wrong, torch.ones(2)

    monkeypatch.setattr(sweep_compiled, "asks", asks)
    assert sweep_compiled.agree(["sin", "tan"], "float32", "compiled")
    assert not sweep_compiled.agree(["sin", "cos"], "float32", "compiled")


def test_the_comparison_finds_what_only_compiled_code_gets_wrong():
    def wrong(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return x.half().t()
        return x.t().contiguous()

    x = torch.arange(6.0).reshape(2, 3)
    found = sweep_compiled.faults(wrong, x, "openreg", False, True)
    assert found is not None
    assert "result 0: dtype: torch.float16, not torch.float32" in found
    assert any("('openreg', (1, 3))" in fault for fault in found)
    assert sweep_compiled.faults(torch.t, x, "openreg", False, True) == []


def test_a_call_that_eager_mode_refuses_is_no_comparison():
    call, x = torch.linalg.inv, torch.ones(2, 3)
    assert sweep_compiled.faults(call, x, "openreg", False, True) is None


def test_only_the_same_fault_of_the_cpus_is_an_excuse():
    ours = [
        "value: 1, not 2",
        "error: f(FakeTensor(..., device='openreg:0', size=(1,)))",
        "error: on openreg:0, in /tmp/a/x.cpp",
    ]
    theirs = [
        "value: 2, not 2",
        "error: f(FakeTensor(..., size=(1,)))",
        "error: on cpu, in /tmp/b/y.cpp",
    ]
    assert list(sweep_compiled.excused(ours, theirs)) == [
        ours[0],
        *(sweep_compiled.CPU_TOO + fault for fault in ours[1:]),
    ]


def test_what_the_cpu_gets_wrong_too_is_counted_apart(capsys, monkeypatch):
    faults = {
        "sin": [],
        "cos": ["result 0: value: 1"],
        "tan": [sweep_compiled.CPU_TOO + "result 0: value: 1"],
        "tanh": ["result 0: value: 2"],
    }
    line = Known("tanh", "compiled-dynamic", "all", "value", "A reason.")
    monkeypatch.setattr(sweep_compiled, "DECLARED", Declared([line]))
    answers = {
        Question(name, "int64", "compiled-dynamic"): {
            "faults": found,
            "calls": 1,
        }
        for name, found in faults.items()
    }
    refused = Question("svd", "int64", "compiled-dynamic")
    answers[refused] = {"faults": [], "calls": 0}
    assert sweep_compiled.report(answers) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "cos int64 compiled-dynamic: result 0: value: 1"
    row = "op_db, int64, dynamic shapes"
    assert (
        printed[-1].split()
        == (
            f"{row} 1 equal 1 wrong 1 listed 1 as on the CPU "
            "1 refused by eager mode"
        ).split()
    )


def test_the_record_is_of_todays_database_and_has_nothing_wrong():
    kept = json.loads(sweep_compiled.RECORD.read_text())
    assert kept["failed"] == []
    assert kept["torch"] == releases.current()[0]
    assert set(kept["counts"]) == {
        f"op_db, {dtype}{shapes}"
        for dtype in sweep_compiled.DTYPES
        for shapes in ("", ", dynamic shapes")
    }
    for row, ends in kept["counts"].items():
        dtype = getattr(torch, row.split(", ")[1])
        asked = [applies(op, dtype, "compiled") for op in ENTRIES.values()]
        assert sum(ends.values()) == sum(asked), "run nox -s ops with --record"
