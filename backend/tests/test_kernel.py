"""The kernels of the chapter about one's own, in each launch mode."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

import _fresh
import _kernels
from _examples import EXAMPLES
from suite import OTHER_MODES

pytestmark = pytest.mark.one_mode

PAGE = Path(__file__).parents[2] / "book" / "chapters" / "kernel.md"
FILE = EXAMPLES / "kernel.cpp"


@functools.cache
def wrong(mode: str) -> dict[str, str]:
    """What a process in this mode found wrong, by check."""
    printed = _fresh.prints(
        """
        import sys
        sys.path[:0] = sys.argv[1:]
        import torch, _kernels
        _kernels.main()
        """,
        str(Path(__file__).parent),
        OPENREG_OPERATORS="minimal",
        OPENREG_LAUNCH=mode,
    )
    found: dict[str, str] = json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.proves("kernel-cpu", "kernel-philox", "kernel-declined-draw")
@pytest.mark.parametrize("mode", ["auto", *OTHER_MODES])
@pytest.mark.parametrize("name", _kernels.CHECKS)
def test_the_kernels(name: str, mode: str) -> None:
    assert name not in wrong(mode), wrong(mode)[name]


def test_what_a_reader_copies_from_the_page_is_the_file() -> None:
    """Which is compiled: no listing leaves out, or reorders, what it needs."""
    page, text = PAGE.read_text(), FILE.read_text()
    region = re.compile(r"^ *// \[([\w-]+)\] .+\n[^\0]*?\[/\1\]\n", re.M)
    shown = re.findall(r'^:start-after: "\[([\w-]+)\]"$', page, re.M)
    assert shown == region.findall(text)
    lines = region.sub("", text).splitlines()
    rest = [x for x in lines if x and not x.startswith(("#include", "// "))]
    assert rest == ["namespace {", "}  // namespace"]
    (named,) = re.findall("^Headers you need: .*$", page, re.M)
    included = re.findall("^#include <(.+)>$", text, re.M)
    assert sorted(re.findall("`<(.+?)>`", named)) == sorted(included)
