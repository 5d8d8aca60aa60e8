"""Rows of the book's tables that tests are made from: data of book/rows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "book" / "rows"


def read(page: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{page}.toml").read_text("utf-8"))
