"""The tables of the storage chapter: each row leads to a test of its own."""

from __future__ import annotations

import ast

import pytest

import regions
from tables import storage

TESTS = regions.ROOT / "backend" / "tests"
ROWS = [
    *storage.CHANGES,
    *storage.SHARING,
    *storage.DLPACK,
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_row_has_a_test(row: storage.Rule) -> None:
    file, name = row.test.split("::")
    assert name in {
        node.name
        for node in ast.parse((TESTS / file).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


def test_no_test_stands_for_two_rows() -> None:
    assert len({row.test for row in ROWS}) == len(ROWS)


def test_every_row_of_sharing_is_compared_with_cuda() -> None:
    assert all(row.cuda for row in storage.SHARING)
    lines = storage.sharing_rules().splitlines()
    assert len(lines) == len(storage.SHARING) + 2


@pytest.mark.parametrize("where", storage.MAP_LOCATIONS)
def test_a_tensor_arrives_where_the_row_says(where: str) -> None:
    assert storage.arrival(where) == storage.MAP_LOCATIONS[where]
    assert f"| `{where}` | `{storage.arrival(where)}` |" in (
        storage.map_locations()
    )


def test_a_fact_has_a_letter_for_each_place() -> None:
    for row in storage.SURVIVALS:
        assert len(row.kept) == len(storage.PLACES)
        assert set(row.kept) <= {"y", "n"}
    assert storage.survivals().count("kept") == sum(
        row.kept.count("y") for row in storage.SURVIVALS
    )
