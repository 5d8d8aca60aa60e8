"""The table of the statistics in book/chapters/memory.md."""

from tables.common import of_rows


def device_stats() -> str:
    """The fields of DeviceStats, and where a program finds them."""
    return of_rows(
        "memory.stats",
        quoted=lambda row: f"`{row.name}`" if row.name else "none",
    )
