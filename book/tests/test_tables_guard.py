"""The guard's table: complete, true to the header, and each row tested."""

import ast
import re

import pytest

import regions
from tables import guard, virtuals

TESTS = regions.ROOT / "backend" / "tests"
PAGE = regions.ROOT / "book" / "chapters" / "guard.md"


def test_eight_of_24_methods_must_be_written() -> None:
    interface = virtuals.methods("guard")
    must = {name for name, m in interface.items() if m.default is None}
    assert (len(must), len(interface)) == (8, 24)
    assert {"exchangeDevice", "deviceCount", "exchangeStream"} < must


def test_the_page_shows_each_default_as_the_toy_meets_it() -> None:
    page = PAGE.read_text()
    for name, method in virtuals.methods("guard").items():
        if method.default is not None:
            _, *message = virtuals.default(method).split('"')
            said = message[0] if message else "no error"
            assert f"\n{name}: {said}\n" in page


@pytest.mark.parametrize("row", guard.GUARD_METHODS, ids=lambda row: row.name)
def test_a_row_leads_to_its_override_and_its_test(
    row: guard.GuardMethod,
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
    assert f"`{row.test}`" in guard.guard_methods()
