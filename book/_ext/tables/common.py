"""What the tables of several pages are made with."""

import re
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from rows import Row, load, rows


class Words(list[Any]):
    """A list in a row: as words of code, with what the form puts between."""

    def __format__(self, between: str) -> str:
        return (between or " ").join(f"`{word}`" for word in self)


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A Markdown table. A bar inside a cell is escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def of_rows(name: str, **made: Callable[[Row], str]) -> str:
    """The rows with this name, as `columns` of their file says: what stands
    above each column, and the form of its cells, with what is made of a row."""
    page, _, one = name.partition(".")
    columns = load(page)["columns"]
    columns = columns.get(one, columns)
    shown = {k: form for k, form in columns.items() if isinstance(form, str)}
    fields = set(re.findall(r"\{(\w+)", "".join(shown.values())))

    def cells(row: Row) -> list[str]:
        if lacks := fields - made.keys() - row.given - {"key", "mark"}:
            where = row.id or f"{name}, in {vars(row)}"
            raise LookupError(f"A row lacks {', '.join(lacks)}: {where}")
        values = {
            key: Words(value) if isinstance(value, list) else value
            for key, value in vars(row).items()
        }
        values |= {key: make(row) for key, make in made.items()}
        return [form.format_map(values) for form in shown.values()]

    return table(shown, map(cells, rows(name)))


def chapter(name: str) -> str:
    """A link to a chapter, if a row names one."""
    return f"[{name}](/chapters/{name}.md)" if name else ""


def drawing(label: str, height: int, parts: Iterable[str]) -> str:
    """An SVG as wide as a narrow screen; `.drawn` in book.css is its style."""
    return (
        f'<svg class="drawn" viewBox="0 0 370 {height}" width="444" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def said(text: str) -> str:
    """A message as it is, on one line."""
    return f"``{' '.join(text.split())}``{{.said}}"


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", text)[0]
