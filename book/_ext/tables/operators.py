"""The table of book/chapters/operators.md."""

from tables.common import of_rows


def minimal_set() -> str:
    """The operators that no backend can lack, and what breaks without."""
    return of_rows(
        "operators.minimal", words=lambda row: row.breaks.replace("_", " ")
    )
