"""Tables for `{generated}`: each function returns Markdown.

A table is made from the package or from the one list beside its function, so
that a page never repeats what the code knows. Add a function, name it in a
page, and add to tests/test_tables.py what must hold for its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. A bar inside a cell is escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


class Variable(NamedTuple):
    name: str
    values: str
    default: str
    meaning: str
    test: str  # file::function below backend/tests


VARIABLES: list[Variable] = []


def environment() -> str:
    """Every environment variable, ours first and PyTorch's after them."""
    return table(
        ("Variable", "Values", "Default", "What it does", "Test"),
        (
            (f"`{v.name}`", v.values, v.default, v.meaning, f"`{v.test}`")
            for v in VARIABLES
        ),
    )


def commands() -> str:
    """The README's commands, which .ci/run executes as they stand."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(
        r"<!-- commands -->\n\n(```sh\n.*?^```$)", readme, re.M | re.S
    )
    assert found, "README.md has no fence below its comment, commands"
    return found[1]
