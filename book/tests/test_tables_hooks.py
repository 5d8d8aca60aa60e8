"""The tables of the hooks: complete, and each row leads where it says."""

import re
from pathlib import Path

import pytest
import torch

import regions
import tables

ROWS = [*tables.HOOKS_HIGH, *tables.HOOKS_LOW, *tables.HOOKS_OWN]
HEADERS = Path(torch.__file__).parent / "include" / "ATen" / "detail"
TESTS = regions.ROOT / "backend" / "tests"


def methods(header: str) -> set[str]:
    """The virtual methods that an interface of PyTorch's declares."""
    text = (HEADERS / header).read_text("utf-8")
    found = re.findall(r"virtual [\w:&*<> ]+?(\w+)\(", text)
    found += re.findall(r"(\w+)\([^()]*\) const override", text)
    return set(found)


def test_the_tables_hold_every_method_of_the_interface_once() -> None:
    every = methods("AcceleratorHooksInterface.h")
    own = methods("PrivateUse1HooksInterface.h") - every
    names = [row.method for row in ROWS]
    assert set(names) == every | own
    assert len(names) == len(set(names)) == 15
    assert {row.method for row in tables.HOOKS_OWN} == own


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method)
def test_a_row_leads_to_its_override_and_its_test(row: tables.Hook) -> None:
    found, _ = regions.find_regions(regions.read_sources())
    (region,) = (region for region in found if region.name == row.region)
    code = "\n".join(region.lines)
    assert re.search(rf"\b{row.method}\(", code)
    assert "override" in code
    file, function = row.test.split("::")
    assert re.search(rf"^def {function}\(", (TESTS / file).read_text(), re.M)
    assert f"[`{row.method}`](#{row.region})" in tables.hook_table([row])
