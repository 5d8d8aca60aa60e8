"""What a device is asked: rows of the book's own tables.

A row is asked by a program for any device; in the files it names the devices
of the pages, `tiny` and `openreg`, and is told the name of yours.
"""

from __future__ import annotations

import doctest
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKED = Path(__file__).parent / "rows"
IN_TREE = Path(__file__).parents[3] / "book" / "rows"
BOOKS_NAMES = re.compile(r"tiny|torch_openreg\.openreg|openreg")
# The file, what its rows are about, and its tables; all in the order to do.
TABLES = {
    "checklist": "what a backend registers",
    "frontend": "what PyTorch looks up in the device module",
    "guard": "the guard",
    "hooks": "the hooks",
    "memory": "the allocators",
    "generator": "the generator",
    "storage": "storages and serialization",
    "amp": "autocast",
}
# These import what takes seconds, so they are asked last, or not at all.
SLOW = (
    *("torch.compile", "torch.testing", "_dynamo", "_inductor"),
    *("_functorch", "_prims", "_subclasses"),
)


class Row(NamedTuple):
    """One question to a device."""

    id: str  # the file, the table in it and the row: hooks.high.init
    what: str  # what is asked, in Markdown
    use: str  # the program; its last line is an expression
    right: str  # the value that it should have; "..." for what varies
    missing: tuple[str, ...]  # what is said where it is left out
    link: str  # to the chapter, in the book
    needed: bool  # by an ordinary program
    means: str = ""  # where what is said does not speak for itself
    needs: str = ""  # the row without which this one fails
    looked_up: str = ""  # the name in the device module

    @property
    def slow(self) -> bool:
        return any(name in self.use for name in SLOW)


def like(pattern: str, text: str) -> bool:
    """Whether the text is as the pattern says, but for its "...".

    >>> like("tensor([1.], ...)", "tensor([1.], device='npu:0')")
    True
    """
    same = doctest.OutputChecker().check_output
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return same(pattern + "\n", text + "\n", options)


def folder() -> Path:
    """Where the rows are: in the package, or beside it in the book's tree."""
    return PACKED if PACKED.is_dir() else IN_TREE


def suite(
    device: str, devices: int = 2, files: Iterable[str] = TABLES
) -> list[Row]:
    """All rows for the device of this name, those of one table together."""
    found = []
    for file in files:
        text = (folder() / f"{file}.toml").read_text("utf-8")
        text = BOOKS_NAMES.sub(device, text)
        if devices == 1:  # then it is its own neighbour
            second = rf"({device}(?::|', |', index=|\(|\.device\())1"
            text = re.sub(second, r"\g<1>0", text)
        data = tomllib.loads(text)
        found += [make(file, *named) for named in rows_of(data, file)]
    return [row for row in found if row.use]


def rows_of(
    table: dict[str, Any], name: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows below, each with its id; a row of a list has one by `name`."""
    for key, row in table.items():
        if key == "columns":
            continue
        if isinstance(row, list):
            named = ((r.get("name") or r.get("where"), r) for r in row)
            yield from ((f"{name}.{key}.{n}", r) for n, r in named if n)
        elif row and all(isinstance(value, dict) for value in row.values()):
            yield from rows_of(row, f"{name}.{key}")
        elif not row.get("harmless"):  # nobody would miss it
            yield f"{name}.{key}", row


def make(file: str, name: str, row: dict[str, Any]) -> Row:
    """A row as the doctor asks it; without a program, it cannot be asked."""
    key = name.rpartition(".")[2] if file != "storage" else name
    right = row.get("right", "")
    use = row.get("asked") or row.get("tried") or row.get("use", "")
    if "arrives" in row:  # a row of torch.load's map_location
        use = f"str(loaded({row['where']}).device)"
        right = repr(row["arrives"])
    chapter = row.get("chapter", file)
    region = f"#{row['region']}" if "region" in row else ""
    return Row(
        id=name,
        what=row.get("what") or f"`{key}`",
        use=use if right else "",
        right=right,
        missing=tuple(
            row[said] for said in ("symptom", "without", "lacks") if said in row
        ),
        link=link(chapter, row.get("code", region)),
        needed=bool(row.get("needed")),
        means=row.get("told") or row.get("means", ""),
        needs=row.get("needs", ""),
        looked_up=key if file == "frontend" else "",
    )


def link(chapter: str, place: str) -> str:
    """The page of a row, in the site, and the place on it."""
    if place.startswith("../"):
        return place.removeprefix("../").replace(".md", ".html")
    return f"chapters/{chapter}.html{place}"
