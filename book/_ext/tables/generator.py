"""The table of book/chapters/generator.md."""

from rows import Row
from tables.common import of_rows
from tables.virtuals import methods


def generator_methods() -> str:
    """Every method of PyTorch's generator interface, and who asks it."""
    interface = methods("generator")

    def method(row: Row) -> str:
        must = row.installed and interface[row.key].default is None
        name = f"[`{row.key}`](#{row.region})" if row.region else f"`{row.key}`"
        return name if must else f"{name} *(optional)*"

    return of_rows("generator", method=method)
