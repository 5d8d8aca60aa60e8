"""The rows about importing name tests that exist."""

import re

import pytest

import regions
from tables import autoload

TESTS = regions.ROOT / "backend" / "tests"


@pytest.mark.parametrize("row", autoload.IMPORTS, ids=lambda row: row.program)
def test_a_row_names_a_test(row: autoload.Import) -> None:
    file, function = row.test.split("::")
    assert re.search(rf"^def {function}\(", (TESTS / file).read_text(), re.M)
    assert row.test in autoload.imports()
