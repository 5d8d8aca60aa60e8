"""The tables of the operators chapter: complete, and true of this PyTorch."""

import regions
import tables


def test_every_row_of_the_minimal_set_links_to_its_registration() -> None:
    found, _ = regions.find_regions(regions.read_sources())
    known = {region.name for region in found} | {"view-register"}
    rows = {row.operator for row in tables.minimal_rows()}
    assert set(tables.MINIMAL_LISTINGS) <= rows
    assert set(tables.MINIMAL_LISTINGS.values()) <= known


def test_rows_without_a_listing_of_their_own_are_views() -> None:
    views = (regions.ROOT / "backend/csrc/aten/view.cpp").read_text()
    for row in tables.minimal_rows():
        if row.operator not in tables.MINIMAL_LISTINGS:
            assert f'add("{row.operator}",' in views
