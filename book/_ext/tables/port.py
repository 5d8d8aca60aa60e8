"""The tables of book/howto/port.md."""

import re
from collections import Counter
from functools import cache

from regions import ROOT
from rows import Row
from tables.common import code, of_rows

READS = ("pyproject.toml", "backend/**")


@cache
def tree() -> dict[str, str]:
    """What the recipe of the page copies: path below the root -> text."""
    files = [ROOT / "pyproject.toml", *(ROOT / "backend").rglob("*")]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }


def users(pattern: str) -> dict[str, int]:
    """The files that use a name, each with how often."""
    found = {p: len(re.findall(pattern, t)) for p, t in tree().items()}
    return {path: count for path, count in found.items() if count}


def names_to_change() -> str:
    """Every name of the backend, and how many files of the tree use it."""

    def uses(row: Row) -> str:
        found = users(row.pattern)
        return f"{sum(found.values())} in {len(found)} files"

    return of_rows(
        "port.names", names=lambda row: code(row.here.split()), uses=uses
    )


def most_used(pattern: str) -> list[str]:
    found = Counter(w for t in tree().values() for w in re.findall(pattern, t))
    return [word for word, _ in found.most_common(5)]


def names_to_keep() -> str:
    """What must stay as it is, with the words of the tree that are meant."""
    return of_rows(
        "port.fixed",
        used=lambda row: code(most_used(row.pattern)),
        files=lambda row: f"{len(users(row.pattern))} files",
    )
