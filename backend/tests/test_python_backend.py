"""The Python backend: what it does, and that each of its limits is one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import _fresh
import _rows

pytestmark = pytest.mark.one_mode

LIMITS = _rows.read("python_backend")["limits"]
EXAMPLE = Path(__file__).parents[1] / "examples" / "python_backend.py"

ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention("
    "*3 * [x.view(1, 1, 2, 3).requires_grad_()]).grad_fn.name()"
)

PROGRAM = """
import io, json, sys, warnings
sys.path.insert(0, sys.argv[1])
import torch
import python_backend

warnings.simplefilter("ignore")
answers = []
for probe in json.loads(sys.argv[2]):
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).to("toy")
    try:
        answers.append(repr(eval(probe)))
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
print(json.dumps(answers))
"""

DOES = {
    "(x + x).cpu().tolist()": "[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]",
    "x": "tensor([[1., 2., 3.],\n        [4., 5., 6.]], device='toy:0')",
    "x.view(3, 2)[0].fill_(0), x.sum().item()": "(..., 18.0)",
    "x.detach().cpu().equal(x.cpu())": "True",
    "x.resize_(3).cpu()": "tensor([1., 2., 3.])",
    "(x @ x.t()).tolist()": "[[14.0, 32.0], [32.0, 77.0]]",
    "torch.add(x, 1, out=torch.empty(0, device='toy')).shape": (
        "torch.Size([2, 3])"
    ),
    "(x * 1).add_(x)[1].tolist()": "[8.0, 10.0, 12.0]",
    "x.add_(1) is x": "True",
    "python_backend.train(200) < 1e-3": "True",
    "x.is_toy, torch.toy.device_count(), x.get_device()": "(True, 1, 0)",
    "torch._C._acc.create_empty_tensor((2,), torch.int8).dtype": "torch.int8",
}


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    without = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return _fresh.run(program, str(EXAMPLE.parent), *arguments, **without)


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """What one process says to all probes."""
    probes = [*DOES, ATTENTION, *(row["probe"] for row in LIMITS)]
    process = run(PROGRAM, json.dumps(probes))
    assert process.returncode == 0, process.stdout
    last = process.stdout.splitlines()[-1]
    return dict(zip(probes, json.loads(last), strict=True))


@pytest.mark.parametrize("probe", DOES)
def test_it_computes(probe: str, answers: dict[str, str]) -> None:
    before, _, after = DOES[probe].partition("...")
    assert answers[probe].startswith(before)
    assert answers[probe].endswith(after)


@pytest.mark.proves("stubs-attention")
def test_attention_is_composed_where_no_stub_is_asked(
    answers: dict[str, str],
) -> None:
    assert answers[ATTENTION] == "'UnsafeViewBackward0'"


@pytest.mark.proves("python-limits")
@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row["probe"])
def test_a_limit_is_one(row: dict[str, str], answers: dict[str, str]) -> None:
    assert answers[row["probe"]].startswith(row["says"])


def test_a_new_storage_ends_the_process() -> None:
    """Nobody is there to allocate it; on openreg the same is a copy."""
    process = run(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import copy, torch, python_backend\n"
        "copy.deepcopy(torch.ones(2).to('toy'))\n"
        "print('copied')"
    )
    assert process.returncode < 0
    assert "copied" not in process.stdout
