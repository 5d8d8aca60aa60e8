"""The tables of the operators chapter: complete, and true of this PyTorch."""

import torch

import regions
from tables import operator_table, operators, operators_inside


def test_every_row_of_the_minimal_set_links_to_its_registration() -> None:
    found, _ = regions.find_regions(regions.read_sources())
    known = {region.name for region in found} | {"view-register"}
    rows = {row.operator for row in operators.minimal_rows()}
    assert set(operators.MINIMAL_LISTINGS) <= rows
    assert set(operators.MINIMAL_LISTINGS.values()) <= known


def test_rows_without_a_listing_of_their_own_are_views() -> None:
    views = (regions.ROOT / "backend/csrc/aten/view.cpp").read_text()
    for row in operators.minimal_rows():
        if row.operator not in operators.MINIMAL_LISTINGS:
            assert f'add("{row.operator}",' in views


# operators-inside.md


def test_each_file_of_the_operators_is_at_one_way() -> None:
    named = [
        f
        for tier in operators_inside.TIERS.values()
        for f in tier.files.split()
    ]
    here = [path.name for path in operators_inside.ATEN.iterdir()]
    assert sorted(named) == sorted(here)
    total = sum(
        len(p.read_text().splitlines()) for p in operators_inside.ATEN.iterdir()
    )
    assert sum(map(operators_inside.lines_of, operators_inside.TIERS)) == total


def test_each_operator_of_the_cpu_goes_one_way() -> None:
    ways = operators_inside.tier_operators()
    dense = set(
        torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    )
    aten = {name for name in dense if name.startswith("aten::")}
    refused = {name for name in aten if name.startswith("aten::fbgemm_")}
    assert {operator_table.tier(name) for name in refused} == {"x"}
    aten -= refused
    assert ways["a"] | ways["b"] | ways["c"] == aten
    assert sum(map(len, ways.values())) == len(aten)
    assert not ways["d"]
    assert {"aten::abs.out", "aten::mul.out"} <= ways["a"]
    assert {"aten::convolution_overrideable", "aten::mm"} <= ways["b"]
    assert {"aten::cumsum", "aten::_to_sparse"} <= ways["c"]
