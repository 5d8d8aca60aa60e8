"""Puts what an example printed into its page, for `nox -s accept`.

Text that still matches stays, with its `...`. New text goes through the
normalisers, so that what differs from run to run is `...` from the beginning.
"""

import doctest
import re
import site
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from regions import ROOT, Fence

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# What differs from run to run, and what stands for it on the page. No line
# may begin with `...`, which a session takes for its own prompt.
_FOLDERS = {*site.getsitepackages(), sys.prefix, str(ROOT)}
NORMALISERS = {
    "address": (r"\b0x[0-9a-f]{6,}\b", "0x..."),
    "duration": (r"(?<=[ (])\d+\.\d+(?= ?(?:[mnu]?s|seconds)\b)", "..."),
    "folder": (
        "|".join(map(re.escape, sorted(_FOLDERS, key=len, reverse=True))),
        "/...",
    ),
    "page's folder": (re.escape(tempfile.gettempdir()) + r"/page-\w+", "/..."),
}


@dataclass(frozen=True)
class Edit:
    """New text for the lines from `first` to before `end`, counted from 1."""

    page: str
    first: int
    end: int
    text: str


def matches(expected: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(expected, got, FLAGS)


def normalise(text: str) -> str:
    for pattern, stands in NORMALISERS.values():
        text = re.sub(pattern, stands, text)
    return text


def settle(expected: str, got: str) -> str:
    """What should stand on the page."""
    return expected if matches(expected, got) else normalise(got)


def body(fence: Fence, text: str) -> Edit:
    return Edit(fence.page, fence.line + 1, fence.end, text)


def output(fence: Fence, after: Fence | None, got: str) -> Edit:
    """Changes, adds or removes the output below a program."""
    if after is None:
        text = f"\n```output\n{normalise(got)}```\n"
        return Edit(fence.page, fence.end + 1, fence.end + 1, text)
    if not got:
        return Edit(fence.page, fence.end + 1, after.end + 1, "")
    return body(after, normalise(got))


def session(fence: Fence, answers: Iterable[tuple[int, str, str]]) -> Edit:
    """Line of the fence's body, old answer, new one; for each that differs."""
    lines = fence.body.splitlines(keepends=True)
    for line, old, new in sorted(answers, reverse=True):
        lines[line : line + old.count("\n")] = [normalise(new)]
    return body(fence, "".join(lines))


def write(edits: Iterable[Edit]) -> list[str]:
    """Changes the pages, from the bottom up; says which."""
    pages: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        pages[edit.page].append(edit)
    for page, changes in pages.items():
        lines = Path(page).read_text("utf-8").splitlines(keepends=True)
        for edit in sorted(changes, key=lambda e: e.first, reverse=True):
            # A fence inside a list is indented as its first line is.
            opening = lines[max(edit.first - 2, 0)]
            margin = opening[: len(opening) - len(opening.lstrip())]
            new = [
                (margin + line if line.strip() else line)
                for line in edit.text.splitlines(keepends=True)
            ]
            lines[edit.first - 1 : edit.end - 1] = new
        Path(page).write_text("".join(lines), "utf-8")
    return sorted(pages)
