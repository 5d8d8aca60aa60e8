"""The badge of each listing: whether a reader writes, takes or leaves its code.

book/rows/badges.toml gives one to regions, files and folders.
"""

from collections.abc import Mapping
from pathlib import Path

import regions
import rows


def given() -> dict[str, str]:
    """Region, file or folder -> its badge, such as "take as it is"."""
    table = rows.load("badges")
    return {place: badge for badge in table for place in table[badge]}


def decides(region: regions.Region, places: Mapping[str, str]) -> str:
    """The nearest of the places that have a badge."""
    near = region.name, region.file, *map(str, Path(region.file).parents)
    for place in near:
        if place in places:
            return place
    raise LookupError(f"[{region.name}] has no badge in book/rows/badges.toml")


def of(region: regions.Region) -> str:
    places = given()
    return places[decides(region, places)]
