"""The table of book/chapters/guard.md."""

from tables.common import of_rows
from tables.virtuals import default, methods


def guard_methods() -> str:
    """Every method of PyTorch's guard interface, as the page explains them."""
    interface = methods("guard")
    return of_rows("guard", left_out=lambda row: default(interface[row.key]))
