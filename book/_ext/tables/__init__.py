"""Tables for `{generated}`: each function returns Markdown.

A table is made from the package or from the one list beside its function, so
that a page never repeats what the code knows. The tables of a page are in the
module with the page's name. Add a function there, name it in `all.py` and in
the page, and add to book/tests/test_tables*.py what must hold for its rows.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Imports `all`, and so PyTorch, when the first name of it is asked."""
    if not name.startswith("__"):
        everything = vars(import_module("tables.all"))
        # A function may have the name of its module: it goes first.
        globals().update((n, v) for n, v in everything.items() if n[:2] != "__")
        if name in everything:
            return everything[name]
    raise AttributeError(f"module 'tables' has no attribute {name!r}")
