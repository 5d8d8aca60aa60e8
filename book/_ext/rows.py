"""Rows of the book's tables: data, in a file of book/rows for each page.

`[exchangeDevice]` in guard.toml is the row `guard.exchangeDevice`, and a test
proves it with @pytest.mark.proves("guard.exchangeDevice"). A row that no test
can prove says why in `untested`; one that an example meets, on which page, in
`shown`. One that PyTorch has `since` a release is proven where that is
installed. Rows of a list, `[[tools]]`, have no names and need no proof.
`[columns]` is no row: it says how the rows of a file, or a table, are shown.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import regions

COLUMNS = "columns"  # how rows are shown
FOLDER = regions.ROOT / "book" / "rows"
# The calls of the device are rows, too: their header says what they do.
SOURCES = ("book/rows/*.toml", "backend/device/openreg.h")
CALL = re.compile(r"^OPENREG_API [^;(]*?\b(or[A-Z]\w+)\(", re.M)


class Row(SimpleNamespace):
    """Its values, `key`, `id`, `installed`, and `mark`, for what is proven."""


def parse(file: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None


def load(page: str) -> dict[str, Any]:
    path = FOLDER / f"{page}.toml"
    if not path.exists():
        raise LookupError(f"There is no file book/rows/{page}.toml.")
    return parse(f"book/rows/{page}.toml", path.read_text("utf-8"))


def recorded(page: str) -> dict[str, Any]:
    """What a run has measured for a page."""
    kept = (FOLDER / f"{page}.json").read_text("utf-8")
    return cast("dict[str, Any]", json.loads(kept))


def as_number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def pytorch() -> str:
    """The installed release, without what a build adds to it."""
    return version("torch").partition("+")[0]


def is_here(row: Mapping[str, Any]) -> bool:
    return as_number(row.get("since", "0")) <= as_number(pytorch())


def mark(row: str) -> str:
    return f" {{proven}}`{row}`"


def must_be_proven(row: Mapping[str, Any]) -> bool | None:
    """None: no test can, and none has to, before this PyTorch has it."""
    return not row.keys() & {"untested", "shown"} if is_here(row) else None


def rows(name: str) -> list[Row]:
    """Those of a page, as "guard", or of a table of it, as "hooks.high".

    A value that only others of them have is an empty text. `given` has the
    names of a row's own.
    """
    page, *path = name.split(".")
    table: Any = load(page)
    for key in path:
        table = table[key]
    if isinstance(table, list):
        named = [("", row) for row in table]
    else:
        named = [pair for pair in table.items() if pair[0] != COLUMNS]
    empty = dict.fromkeys((key for _, row in named for key in row), "")
    return [
        Row(
            **{**empty, **row},
            key=key,
            given=row.keys(),
            installed=is_here(row),
            id=f"{name}.{key}",
            mark=(f" (from torch {row['since']})" if "since" in row else "")
            + mark(f"{name}.{key}") * bool(key and must_be_proven(row)),
        )
        for key, row in named
    ]


def read(root: Path = regions.ROOT) -> dict[str, str]:
    return regions.read(SOURCES, root)


def every(texts: Mapping[str, str]) -> dict[str, bool | None]:
    """The id of each row with a name, and whether a test must prove it."""
    found: dict[str, bool | None] = {}
    for file, text in texts.items():
        if file.endswith(".toml"):
            found.update(below(parse(file, text), Path(file).stem))
        else:
            found.update((f"emulator.{x}", True) for x in CALL.findall(text))
    return found


def below(
    table: dict[str, Any], name: str
) -> Iterator[tuple[str, bool | None]]:
    for key, row in table.items():
        if not isinstance(row, dict) or key == COLUMNS:
            continue  # of the page itself, or a list
        if row and all(isinstance(value, dict) for value in row.values()):
            yield from below(row, f"{name}.{key}")
        else:
            yield f"{name}.{key}", must_be_proven(row)
