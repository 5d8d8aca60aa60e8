"""The rows of the generated tables agree with what they speak of."""

import re

import pytest

import regions
from tables import common, environment, start

TESTS = regions.ROOT / "backend" / "tests"


def test_cells_with_bars_stay_one_cell() -> None:
    assert common.table(("a", "b"), [("x|y", "z")]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| x\\|y | z |",
    ]


def test_every_variable_that_is_read_is_a_row() -> None:
    sources = "".join(regions.read_sources().values())
    read = set(re.findall(r'\("(OPENREG_\w+)"', sources))
    rows = {variable.name for variable in environment.VARIABLES}
    assert {name for name in rows if name.startswith("OPENREG_")} == read


@pytest.mark.parametrize("row", environment.VARIABLES, ids=lambda row: row.name)
def test_every_variable_has_a_test_that_names_it(
    row: environment.Variable,
) -> None:
    file, function = row.test.split("::")
    text = (TESTS / file).read_text()
    assert re.search(rf"^def {function}\(", text, re.M)
    assert row.name in text


def test_commands_are_the_readmes() -> None:
    assert start.commands().splitlines()[0] == "```sh"
    assert "nox -s docs" in start.commands()
