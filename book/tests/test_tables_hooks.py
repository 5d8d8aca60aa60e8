"""The tables of the hooks: complete, and each row leads where it says."""

import re

import pytest

import regions
from tables import hooks, virtuals

ROWS = [
    *hooks.HOOKS_HIGH,
    *hooks.HOOKS_LOW,
    *hooks.HOOKS_OWN,
]
TESTS = regions.ROOT / "backend" / "tests"


def test_the_tables_part_the_interface() -> None:
    assert len(hooks.HOOKS_HIGH) == len(hooks.HOOKS_LOW) == 7
    header, name = virtuals.INTERFACES["hooks"].classes[0]
    text = (virtuals.include_folder() / header).read_text("utf-8")
    own = set(virtuals.methods("hooks")) - set(
        virtuals.virtual_methods(text, name)
    )
    assert {row.method for row in hooks.HOOKS_OWN} == own


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method)
def test_a_row_leads_to_its_override_and_its_test(
    row: hooks.Hook,
) -> None:
    found, _ = regions.find_regions(regions.read_sources())
    (region,) = (region for region in found if region.name == row.region)
    code = "\n".join(region.lines)
    assert re.search(rf"\b{row.method}\(", code)
    assert "override" in code
    file, function = row.test.split("::")
    assert re.search(rf"^def {function}\(", (TESTS / file).read_text(), re.M)
    assert f"[`{row.method}`](#{row.region})" in hooks.hook_table([row])
