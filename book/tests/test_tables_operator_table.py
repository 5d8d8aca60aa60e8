"""The tables of operators show what the dispatcher and the CPU have."""

import pytest
import torch
from _pages import samples

from tables import operator_table

WHAT_RUNS = samples("operators")
ALONE = "native", "alias"


@pytest.mark.parametrize("entry", WHAT_RUNS)
def test_a_row_shows_what_runs(entry: str) -> None:
    row = operator_table.look(entry)
    assert row is not None
    letter, names = WHAT_RUNS[entry]
    assert (row.tier, row.operators[: len(names)]) == (letter, names)


def test_an_operator_that_only_the_cpu_has_would_fall_back() -> None:
    library = torch.library.Library("openreg_table_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    assert operator_table.tier("openreg_table_test::twice") == "none"
    library.impl("twice", lambda x: x * 2, "CPU")
    assert operator_table.tier("openreg_table_test::twice") == "fallback"
    library.impl("twice", lambda x: x, "PrivateUse1")
    assert operator_table.tier("openreg_table_test::twice") in ALONE
    library._destroy()


def test_no_operator_of_aten_falls_back() -> None:
    last = [
        line.split("|")[-2]
        for line in operator_table.operator_tiers().split("\n")
    ]
    counts = dict(zip(operator_table.TIERS, map(int, last[2:]), strict=True))
    assert counts.pop("fallback") == 0
    assert min(counts.values()) > 0


def test_a_row_says_its_dtypes_in_words() -> None:
    row = operator_table.look("linalg.cholesky")
    assert row is not None
    assert row.dtypes == ["float32", "float64", "complex64"]
    says = "`linalg.cholesky`", "alias", "float32, float64, complex64"
    assert operator_table.show(row)[:3] == says
    known = operator_table.look("tril")
    assert known is not None
    name, _, dtypes, _ = operator_table.show(known)
    assert (name, dtypes) == ("`tril` *", "all")
