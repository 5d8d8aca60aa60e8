"""What PyTorch builds on collectives, unchanged, on two devices and on four.

_parallel.py has what the ranks do. One group of processes runs all of it, for
a process costs more than a case does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch.distributed as dist

import _fresh
import _ranks
import _rows
from _examples import EXAMPLES

pytestmark = pytest.mark.one_mode

FREE, IMPOSSIBLE = (
    _rows.read("distributed")[table] for table in ("free", "impossible")
)
IMPORTS = """
import torch.distributed.fsdp, torch.distributed.tensor.parallel
import torch.distributed.checkpoint, torch.distributed.optim
import torch.distributed.pipelining
"""
# What PyTorch's builds for CUDA let any device try.
OF_OTHER_BUILDS = {"bfloat16", "replicas"}


def run(cases: str, size: int = 2) -> str:
    code = f"""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "99"
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import _parallel as of
    begin(BOTH)
    of.main({cases})
    """
    return _ranks.run(code, size, first=IMPORTS, OPENREG_DEVICE_COUNT=str(size))


def said(name: str) -> str:
    """The words of PyTorch's in a row, which are those in backquotes."""
    words: str = IMPOSSIBLE[name]["says"].split("`")[1]
    return words


@pytest.fixture(scope="module")
def output() -> str:
    """What the ranks print, all cases done."""
    return run("of.FREE | of.IMPOSSIBLE") + run("of.MESHES", 4)


@pytest.fixture(scope="module")
def found(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+): (.*)", output, re.MULTILINE))


@pytest.mark.proves("distributed.free.*")
@pytest.mark.parametrize("name", FREE)
def test_it_needs_nothing_more_of_a_device(
    name: str, found: dict[str, str]
) -> None:
    assert found[name] == "None"


@pytest.mark.proves("distributed.impossible.*")
@pytest.mark.parametrize(
    "name", [each for each in IMPOSSIBLE if each != "times"]
)
def test_what_is_out_of_reach_says_so(name: str, found: dict[str, str]) -> None:
    if not (name in OF_OTHER_BUILDS and dist.is_nccl_available()):
        assert said(name) in found[name]


@pytest.mark.proves("distributed.impossible.times")
def test_the_logger_of_ddp_has_no_times(output: str) -> None:
    assert said("times") in output


@pytest.mark.stress
def test_torchrun_starts_a_process_for_each_of_four_devices() -> None:
    printed = _fresh.prints(
        """
        import sys
        from torch.distributed import run
        run.main(["--nproc-per-node", "4", *sys.argv[1:]])
        """,
        str(EXAMPLES / "parallel_model.py"),
        new=True,
        OPENREG_DEVICE_COUNT="4",
    )
    ways = re.findall(r"^(\w+) +4 processes", printed, re.MULTILINE)
    assert ways == ["ddp", "fsdp", "tensor", "both"]


@pytest.mark.stress
def test_two_hundred_rounds_give_what_they_must() -> None:
    _ranks.run(
        """
    begin()
    pairs = [dist.new_group([first, first + 1]) for first in (0, 2)]
    for turn in range(200):
        x = torch.full((1 + 97 * turn,), rank + 1.0, device="openreg")
        works = [dist.all_reduce(y := x + turn, async_op=True)]
        pair = pairs[rank // 2]
        works += [dist.all_reduce(z := x * 2, group=pair, async_op=True)]
        got = torch.empty_like(x)
        works += dist.batch_isend_irecv([
            dist.P2POp(dist.isend, x, (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ])
        for work in works:
            work.wait()
        totals = 10 + 4 * turn, [6, 14][rank // 2], (rank - 1) % size + 1
        for found, total in zip((y, z, got), totals):
            assert found.eq(total).all(), (turn, found, total)
        if turn % 50 == 0:
            dist.barrier()
    """,
        size=4,
    )
