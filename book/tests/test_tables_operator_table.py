"""The tables of operators show what the dispatcher and the CPU have."""

import pytest
import torch
from _pages import samples

from tables import operator_table

WHAT_RUNS = samples("operators")


@pytest.mark.parametrize("entry", WHAT_RUNS)
def test_a_row_shows_what_runs(entry: str) -> None:
    row = operator_table.look(entry)
    assert row is not None
    letter, names = WHAT_RUNS[entry]
    assert (row.tier, row.operators[: len(names)]) == (letter, names)


def test_an_operator_that_only_the_cpu_has_would_fall_back() -> None:
    library = torch.library.Library("openreg_table_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    assert operator_table.tier("openreg_table_test::twice") == "x"
    library.impl("twice", lambda x: x * 2, "CPU")
    assert operator_table.tier("openreg_table_test::twice") == "f"
    library.impl("twice", lambda x: x, "PrivateUse1")
    assert operator_table.tier("openreg_table_test::twice") in "na"
    library._destroy()


def test_no_operator_of_aten_falls_back() -> None:
    last = [
        line.split("|")[-2]
        for line in operator_table.operator_tiers().split("\n")
    ]
    counts = dict(zip(operator_table.LETTERS, map(int, last[2:]), strict=True))
    assert counts["f"] == 0
    assert min(counts["n"], counts["a"], counts["c"], counts["x"]) > 0


def test_a_row_has_a_letter_for_each_dtype() -> None:
    row = operator_table.look("linalg.cholesky")
    assert row is not None
    assert row.dtypes == ["float32", "float64", "complex64"]
    assert operator_table.show(row)[:2] == ("`linalg.cholesky`", "`aa···a`")
    known = operator_table.look("tril")
    assert known is not None
    assert operator_table.show(known)[0] == "`tril` *"
