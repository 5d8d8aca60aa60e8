"""Each table names the files that it is made from."""

import builtins
import io
import os
import re
import sys
from typing import Any

import pytest

import regions
import tables

# What is made from the sources, and needs no pattern of its own.
MADE = re.compile(r"/(?:__pycache__|_build|build|\.\w+)(?:/|$)")


def shown_tables() -> list[str]:
    return sorted(
        fence.argument
        for page, text in regions.read_pages().items()
        for fence in regions.find_fences(page, text)
        if fence.kind in ("{generated}", "{drawing}")
        and not fence.argument.endswith(".svg")
    )


def forget() -> None:
    """What a cache has from before would not be read again."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("tables.", "regions", "rows")):
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()


@pytest.mark.parametrize("name", shown_tables())
def test_a_table_names_what_it_reads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: set[str] = set()
    real = io.open

    def note(file: Any, *how: Any, **more: Any) -> Any:
        opened.add(str(file))
        return real(file, *how, **more)

    needed = tables.behind(name)
    forget()
    monkeypatch.setattr(io, "open", note)
    monkeypatch.setattr(builtins, "open", note)
    tables.make(name)
    missing = {
        file
        for file in opened - needed
        if file.startswith(str(regions.ROOT)) and os.path.isfile(file)
    }
    missing = {file for file in missing if not MADE.search(file)}
    # A warning quotes the lines that led to it.
    missing -= {__file__, tables.__file__}
    assert not missing, f"add to READS of the module of {name}: {missing}"
