"""The tables of book/reference/listings.md."""

import badges
import regions
from tables.common import table

READS = (*regions.SOURCES, "book/**/*.md", "book/rows/badges.toml")


def with_badge(badge: str) -> str:
    """The listings with a badge, in the order of the menu."""
    page_of = regions.pages_of(regions.read_pages())
    menu, places = regions.toctree(), badges.given()
    found, _ = regions.find_regions(regions.read_sources())
    mine = [r for r in found if places[badges.decides(r, places)] == badge]
    mine.sort(key=lambda r: menu.index(regions.docname(page_of[r.name])))
    body = (
        (
            f"[](#{region.name})",
            f"[](/{page_of[region.name].removeprefix('book/')})",
            f"`{region.file.removeprefix('backend/')}`",
        )
        for region in mine
    )
    return table(("Listing", "On the page", "In the file"), body)
