"""What the tables of several pages are made with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. A bar inside a cell is escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def drawing(label: str, height: int, parts: Iterable[str]) -> str:
    """An SVG as wide as a narrow screen; `.drawn` in book.css is its style."""
    return (
        '```{raw} html\n<div class="drawing"><svg class="drawn" '
        f'viewBox="0 0 370 {height}" width="444" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg></div>\n```\n'
    )


def code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", text)[0]
