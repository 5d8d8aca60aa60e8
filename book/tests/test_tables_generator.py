"""The generator's table: complete, and each row leads where it says."""

import ast
import re

import pytest

import regions
from tables import generator, virtuals

TESTS = regions.ROOT / "backend" / "tests"


def test_two_methods_of_the_generator_are_optional() -> None:
    interface = virtuals.methods("generator")
    optional = {name for name, m in interface.items() if m.default is not None}
    assert optional == {"graphsafe_get_state", "graphsafe_set_state"}


@pytest.mark.parametrize(
    "row", generator.GENERATOR_METHODS, ids=lambda row: row.name
)
def test_a_row_leads_to_its_override_and_its_test(
    row: generator.GeneratorMethod,
) -> None:
    found, _ = regions.find_regions(regions.read_sources())
    (region,) = (region for region in found if region.name == row.region)
    assert re.search(
        rf"\b{row.name}\([^()]*\)[^;{{]*override", "\n".join(region.lines)
    )
    file, name = row.test.split("::")
    (test,) = (
        node
        for node in ast.walk(ast.parse((TESTS / file).read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    first = row.asked_by.split("`")[1]
    call = first.removeprefix("Generator").removesuffix("()")
    assert f"{call}(" in ast.unparse(test)
    assert f"`{row.test}`" in generator.generator_methods()
