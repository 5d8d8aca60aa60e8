"""The tables of book/reference/listings.md."""

import badges
import regions
from tables.common import in_menu, table

READS = (*regions.SOURCES, "book/**/*.md", "book/rows/badges.toml")


def with_badge(badge: str) -> str:
    """The listings with a badge, in the order of the menu."""
    page_of = regions.pages_of(regions.read_pages())
    found, _ = regions.find_regions(regions.read_sources())
    mine = [region for region in found if badges.of(region) == badge]
    body = (
        (
            f"[](#{region.name})",
            f"[](/{page_of[region.name].removeprefix('book/')})",
            f"`{region.file.removeprefix('backend/')}`",
        )
        for region in sorted(mine, key=lambda r: in_menu(page_of[r.name]))
    )
    return table(("Listing", "On the page", "In the file"), body)
