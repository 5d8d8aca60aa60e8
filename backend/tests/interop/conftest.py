"""What came of using other packages, kept as the rows of the book's tables.

A test ends by saying what a reader will ask: does it work, and what does it
take? `nox -s interop -- --record` writes that, with the packages' versions,
into book/rows/interop.toml.
"""

from __future__ import annotations

import json
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

# The wheel of torchvision on PyPI is built for PyTorch's CUDA build. Elsewhere
# its own operators are missing, and its Python asks for the names of two.
if not torch.backends.cuda.is_built():
    for _name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{_name}", "(Tensor a, Tensor b, float c) -> Tensor"
        )

ROWS = Path(__file__).parents[3] / "book" / "rows" / "interop.toml"
# What stands before the first row is not a run's.
ROWS_BEGIN = "\n# What the last run has found.\n"

_found: dict[str, list[dict[str, str]]] = defaultdict(list)


class Keep:
    """Rows of a table, to which the test that asks for it adds."""

    def __call__(self, table: str, *packages: str, **cells: str) -> None:
        names = ", ".join(f"{name} {version(name)}" for name in packages)
        _found[table].append({"packages": names, **cells})


@pytest.fixture
def keep() -> Keep:
    return Keep()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true")


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    if session.config.option.record and exitstatus == 0:
        head = ROWS.read_text("utf-8").partition(ROWS_BEGIN)[0]
        ROWS.write_text(head + ROWS_BEGIN + as_toml(), "utf-8")


def as_toml() -> str:
    def cell(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    return "".join(
        f"\n[[{table}]]\n"
        + "".join(f"{k} = {cell(v)}\n" for k, v in row.items())
        for table, rows in _found.items()
        for row in rows
    )
