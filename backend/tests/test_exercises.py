"""Exercises that are built: each begins wrong, and its solution is right."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import judge

PAGES = Path(__file__).parents[2] / "book" / "chapters"
# What the judge says of the file in the tree, which its page says, too.
BEGINS = {
    "current_device": "a new thread begins on device 1, not on 0",
    "pinned": "a byte in the middle of a block is not pinned",
    "rounding": "a block of 1000 bytes did not serve 999",
    "dropout": "p = 0.75 has made {1.0} of a kept 1",
    "written": "double_ has made [1, 2] of [1, 2]",
    "device_context": "1 was current, and then 0",
    "exports": "the library exports add(int, int), calls",
    "exchange_stream": "a stream of device 1 became current on device 0",
    "next_stream": "the 33rd stream is not the first again",
    "event_marks": "an event is not reached, though all before it is done",
    "segments": "a segment was opened twice",
    "version_check": "a build for 2.13.1 has accepted 2.13.10",
    "neg": "every second element has become [-1.0, -2.0, -3.0, -4.0]",
    "counter": "the second draw has not moved on",
}


def marked(name: str) -> object:
    """What is C++ is compiled once, and not in each launch mode."""
    python = judge.file_of(name).suffix == ".py"
    return pytest.param(name, marks=() if python else pytest.mark.one_mode)


exercises = pytest.mark.parametrize("name", [*map(marked, BEGINS)])


def test_each_exercise_has_a_judge_and_a_solution() -> None:
    for folder in judge.FOLDER, judge.FOLDER / "solutions":
        names = {file.stem for file in folder.glob("*.*")}
        assert names == judge.JUDGES.keys() == BEGINS.keys()


def is_answered(file: Path) -> bool:
    """Whether a reader has written into it, as far as git can tell."""
    compare = ["git", "diff", "--quiet", "HEAD", "--", file.name]
    return subprocess.run(compare, cwd=file.parent).returncode == 1


@exercises
def test_what_a_reader_begins_with_fails_as_the_page_says(name: str) -> None:
    file = judge.file_of(name)
    if is_answered(file):
        pytest.skip(f"{file.name} has been answered: judge.py says how well")
    with pytest.raises(AssertionError, match=re.escape(BEGINS[name])):
        judge.JUDGES[name](file)


@exercises
def test_a_solution_is_right(name: str) -> None:
    judge.JUDGES[name](judge.file_of(name, judge.FOLDER / "solutions"))


@pytest.mark.one_mode
@pytest.mark.parametrize("name", BEGINS)
def test_a_page_sets_it(name: str) -> None:
    command = f"nox -s tests -- backend/tests/judge.py -k {name}`"
    texts = [page.read_text() for page in PAGES.glob("*.md")]
    (text,) = [text for text in texts if command in text]
    assert f"exercises/{name}." in text
    assert f"exercises/solutions/{name}." in text
    assert f"`{BEGINS[name]}`" in text
