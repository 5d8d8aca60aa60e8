"""PyTorch's databases on the device: one sample of each entry.

`nox -s ops` asks the whole of them, by the conformance kit.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

import _probes
import sweep_compiled
from _fresh import prints, without_kernel
from sweep_compiled import DECLARED
from torch_device_kit.conformance import learning
from torch_device_kit.conformance.compare import faults
from torch_device_kit.conformance.database import (
    DTYPES,
    ENTRIES,
    KINDS,
    applies,
    check,
)
from torch_device_kit.conformance.known import ALL, Question

LEARNT = Path(__file__).parents[2] / "book/rows/conformance_learning.toml"
# What stands before this line is written by hand.
FOUND = "\n# What the last run has found.\n"


def entries(kind: str) -> list[str]:
    return [n for n, op in ENTRIES.items() if applies(op, torch.float32, kind)]


@pytest.mark.parametrize("name", entries("forward"))
def test_the_first_sample_comes_out_as_on_the_cpu(name) -> None:
    calls, found = check(name, "float32", "forward", 1)
    assert calls == 1
    assert (
        DECLARED.unexplained(Question(name, "float32", "forward"), found) == []
    )


@pytest.mark.one_mode
@pytest.mark.parametrize("name", entries("in-place"))
def test_the_first_sample_in_place_comes_out_as_on_the_cpu(name) -> None:
    calls, found = check(name, "float32", "in-place", 1)
    assert calls == 1
    assert (
        DECLARED.unexplained(Question(name, "float32", "in-place"), found) == []
    )


@pytest.mark.one_mode
@pytest.mark.parametrize("row", [*learning.questions()], ids=str)
def test_a_module_or_optimizer_learns_as_on_the_cpu(row: Question) -> None:
    calls, found = learning.check(*row, 1)
    assert calls == 1
    assert DECLARED.unexplained(row, found) == []


def counts(kind: str, said: dict[Question, tuple[int, list[str]]]) -> str:
    """A row of the book's table: what came of the entries of a kind."""
    answers = [answer for row, answer in said.items() if row.kind == kind]
    right = sum(not found for _, found in answers)
    told = {
        "kind": json.dumps(kind),
        "entries": len(answers),
        "calls": sum(calls for calls, _ in answers),
        "right": right,
        "declared": len(answers) - right,
    }
    lines = (f"{key} = {value}\n" for key, value in told.items())
    return "".join(["\n[[counts]]\n", *lines])


@pytest.mark.stress
def test_each_setting_of_them_is_as_recorded(
    pytestconfig: pytest.Config,
) -> None:
    """If not: nox -s accept -- FILE -m stress, and read what changed."""
    said = {row: learning.check(*row, ALL) for row in learning.questions()}
    wrong = {
        row: faults
        for row, (_, found) in said.items()
        if (faults := DECLARED.unexplained(row, found))
    }
    assert wrong == {}
    top, begin, kept = LEARNT.read_text("utf-8").partition(FOUND)
    told = "".join(counts(kind, said) for kind in learning.KINDS)
    if pytestconfig.getoption("accept"):
        LEARNT.write_text(f"{top}{begin}{told}", "utf-8")
    assert told == kept


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
    kinds = [*KINDS, *_probes.PROBES, *sweep_compiled.KINDS]
    questions = [
        Question(name, dtype, kind)
        for name in ENTRIES
        for dtype in DTYPES
        for kind in kinds
    ]
    questions += learning.questions()
    for known in DECLARED.lines:
        assert any(map(known.covers, questions)), known
        assert known.reason.endswith("."), known


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
