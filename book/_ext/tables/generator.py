"""The table of book/chapters/generator.md."""

from rows import Row
from tables.common import of_rows
from tables.virtuals import methods


def generator_methods() -> str:
    """Every method of PyTorch's generator interface, and who asks it."""
    interface = methods("generator")

    def optional(row: Row) -> str:
        must = interface[row.key].default is None
        return "" if must else " *(optional)*"

    return of_rows("generator", optional=optional)
