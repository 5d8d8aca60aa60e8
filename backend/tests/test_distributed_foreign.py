"""PyTorch's own tests of torch.distributed; see sweep_distributed.py.

What fails is a row with the reason. So a test that begins to fail is seen, and
one that ceases to.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import Any

import pytest

import releases
import sweep_distributed

pytestmark = pytest.mark.one_mode
FEW = "test_(all_reduce_sum|all_to_all|reduce_scatter_tensor|send_recv)(_cuda)?"


def kept() -> dict[str, Any]:
    return tomllib.loads(sweep_distributed.RECORD.read_text("utf-8"))


def judge(chosen: str) -> Counter[str]:
    """Raises unless just those fail that have a row, and as it says."""
    found = sweep_distributed.outcomes(chosen)
    print(*(f"{name}: {end}" for name, end in found.items()), sep="\n")
    fails = {
        row["test"]: row["says"]
        for row in kept()["fails"]
        if re.fullmatch(chosen, row["test"])
    }
    ends = {n: end for n, end in found.items() if end.startswith("failed")}
    assert ends.keys() == fails.keys(), {
        name: ends.get(name) for name in ends.keys() ^ fails.keys()
    }
    for name, end in ends.items():
        assert fails[name] in end, (name, end)
    return Counter(end.partition(":")[0] for end in found.values())


def test_some_of_pytorchs_own_tests_pass() -> None:
    assert judge(FEW) == {"passed": 6}


@pytest.mark.stress
@pytest.mark.recorded
@pytest.mark.parametrize("part", sweep_distributed.PARTS)
def test_all_of_pytorchs_own_tests_end_as_recorded(part: str) -> None:
    assert judge(part)["passed"] > 3


def test_the_record_is_of_this_version_and_has_each_failure() -> None:
    record = kept()
    (run,) = record["run"]
    assert run["torch"] == releases.current()[0]
    counts = Counter[str]()
    for row in record["counts"]:
        counts[row["end"]] += row["tests"]
    assert counts["passed"] > 9 * counts["failed"]
    assert counts["failed"] == len(record["fails"])
