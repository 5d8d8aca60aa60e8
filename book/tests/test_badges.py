"""Every listing has one badge, and nothing has one that needs none."""

import pytest

import badges
import new
import regions
import rows

REGIONS, _ = regions.find_regions(regions.read_sources())


def needless(places: dict[str, str], found: list[regions.Region]) -> set[str]:
    """The places that give no region its badge."""
    return places.keys() - {badges.decides(region, places) for region in found}


def test_each_badge_is_given_once_and_to_a_listing() -> None:
    table = rows.load("badges")
    assert table.keys() == {"yours to write", "take as it is", "emulator only"}
    places = badges.given()
    assert len(places) == sum(map(len, table.values()))
    assert needless(places, REGIONS) == set()
    assert needless({**places, "no-such-region": "yours"}, REGIONS)


def test_the_nearest_place_gives_the_badge() -> None:
    region = REGIONS[-1]
    near = (region.name, region.file, ".")
    for i, place in enumerate(near):
        assert badges.decides(region, dict.fromkeys(near[i:], "")) == place
    with pytest.raises(LookupError, match=rf"\[{region.name}\] has no badge"):
        badges.decides(region, {"backend/no": "yours"})


def test_the_package_of_nox_new_has_nothing_of_the_emulator() -> None:
    grown = [new.sources(step) for step in [new.FIRST, *new.steps()]]
    lines = "\n".join(text for files in grown for text in files.values())
    marks = filter(None, map(regions.MARKER.match, lines.splitlines()))
    copied = {mark["name"] for mark in marks}
    kinds = {badges.of(r) for r in REGIONS if r.name in copied}
    assert kinds == {"yours to write", "take as it is"}
    assert len(copied) > 40
