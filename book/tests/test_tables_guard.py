"""The guard's table: complete, true to the header, and each row tested."""

import ast
import re

import pytest

import regions
import tables

TESTS = regions.ROOT / "backend" / "tests"
PAGE = regions.ROOT / "book" / "chapters" / "guard.md"


def test_every_method_of_the_guard_has_one_row() -> None:
    names = [row.name for row in tables.GUARD_METHODS]
    assert sorted(names) == sorted(tables.guard_interface())
    assert len(names) == 24


def test_eight_methods_must_be_written_and_all_are() -> None:
    defaults = tables.guard_interface()
    must = {name for name, body in defaults.items() if not body}
    assert len(must) == 8
    assert {"exchangeDevice", "deviceCount", "exchangeStream"} < must
    assert sorted(tables.guard_overrides()) == sorted(defaults)


def test_the_page_shows_each_default_as_the_toy_meets_it() -> None:
    page = PAGE.read_text()
    for name, body in tables.guard_interface().items():
        if body:
            _, *message = tables.guard_default(body).split('"')
            said = message[0] if message else "no error"
            assert f"\n{name}: {said}\n" in page


@pytest.mark.parametrize("row", tables.GUARD_METHODS, ids=lambda row: row.name)
def test_a_row_leads_to_its_override_and_its_test(
    row: tables.GuardMethod,
) -> None:
    found, _ = regions.find_regions(regions.read_sources())
    (region,) = (region for region in found if region.name == row.region)
    assert re.search(
        rf"\b{row.name}\([^()]*\)\s+const(?: noexcept)? override",
        "\n".join(region.lines),
    )
    file, name = row.test.split("::")
    assert name in {
        node.name
        for node in ast.walk(ast.parse((TESTS / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert f"`{row.test}`" in tables.guard_methods()
