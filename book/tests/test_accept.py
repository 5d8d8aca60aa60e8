"""`nox -s accept`: what it writes passes afterwards, and what held stays."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pages import failures

import accept
import conftest

BEFORE_AND_AFTER = {
    "an output": (
        "```python\nprint(1)\n```\n\n```output\n2\n3\n```\nText.\n",
        "```python\nprint(1)\n```\n\n```output\n1\n```\nText.\n",
    ),
    "an output that is missing": (
        "```python\nprint(1)\n```\nText.\n",
        "```python\nprint(1)\n```\n\n```output\n1\n```\nText.\n",
    ),
    "an output that is gone": (
        "```python\nx = 1\n```\n\n```output\n1\n```\nText.\n",
        "```python\nx = 1\n```\nText.\n",
    ),
    "two outputs": (
        "```python\nprint(1)\n```\n\n```output\n2\n3\n```\nText.\n"
        "```python\nprint(4)\n```\n\n```output\n5\n```\n",
        "```python\nprint(1)\n```\n\n```output\n1\n```\nText.\n"
        "```python\nprint(4)\n```\n\n```output\n4\n```\n",
    ),
    "an output in a list": (
        "- x\n\n  ```python\n  print('1\\n\\n2')\n  ```\n\n"
        "  ```output\n  2\n  ```\n",
        "- x\n\n  ```python\n  print('1\\n\\n2')\n  ```\n\n"
        "  ```output\n  1\n\n  2\n  ```\n",
    ),
    "a session": (
        "```python\n>>> 1\n2\n3\n>>> x = [\n... 3]\n"
        ">>> x[0]\n>>> 'abc'\n'a...'\n```\n",
        "```python\n>>> 1\n1\n>>> x = [\n... 3]\n"
        ">>> x[0]\n3\n>>> 'abc'\n'a...'\n```\n",
    ),
    "an error": (
        "```python\n>>> 1 / 0\n1\n```\n",
        "```python\n>>> 1 / 0\nTraceback (most recent call last):\n...\n"
        "ZeroDivisionError: division by zero\n```\n",
    ),
    "commands": (
        "```console\n$ cat <<END\n> a\n> END\nb\n"
        "$ echo xyz\nx...\n$ true\nz\n```\n",
        "```console\n$ cat <<END\n> a\n> END\na\n"
        "$ echo xyz\nx...\n$ true\n```\n",
    ),
}


def run(page: Path) -> list[accept.Edit]:
    """What running the page would change."""
    conftest.EDITS.clear()
    for _ in failures(str(page), page.read_text()):
        assert conftest.EDITS
    edits = list(conftest.EDITS)
    conftest.EDITS.clear()
    return edits


@pytest.mark.parametrize("name", BEFORE_AND_AFTER)
def test_what_is_printed_is_written(name: str, tmp_path: Path) -> None:
    before, after = BEFORE_AND_AFTER[name]
    page = tmp_path / "page.md"
    page.write_text(before)
    assert accept.write(run(page)) == [str(page)]
    assert page.read_text() == after
    assert run(page) == []


def test_a_command_that_fails_is_not_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo a\nb\n$ false\n```\n")
    (failure,) = failures(str(page), page.read_text())
    with pytest.raises(AssertionError, match="prints something else"):
        raise failure
    assert conftest.EDITS == []


NORMAL = {
    "address": ("<f at 0x7f12ab34cd>", "<f at 0x...>"),
    "duration": (
        "in 0.12s (3.5 ms) or 1.5 seconds",
        "in ...s (... ms) or ... seconds",
    ),
    "folder": (f"File {accept.ROOT}/noxfile.py", "File /.../noxfile.py"),
    "page's folder": (
        f"in {tempfile.gettempdir()}/page-ab_1/a.py",
        "in /.../a.py",
    ),
}


def test_each_normaliser_has_a_sample() -> None:
    assert set(accept.NORMALISERS) == set(NORMAL)


@pytest.mark.parametrize("name", NORMAL)
def test_what_varies_is_shown_as_dots(name: str, monkeypatch) -> None:
    text, stands = NORMAL[name]
    monkeypatch.setattr(accept, "NORMALISERS", {name: accept.NORMALISERS[name]})
    assert accept.normalise(text) == stands
    assert accept.matches(stands, text)


def test_what_does_not_vary_is_left_alone() -> None:
    text = "0x10 at 1.5, 3 s, a1.5s\n2.50 ms\n[0.5, 1.5]\n"
    assert accept.normalise(text) == text


def test_nothing_is_written_unless_asked(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.option.accept is False


@pytest.mark.parametrize("asked", [True, False])
def test_pages_change_only_when_asked(
    asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> 1\n2\n```\n")
    conftest.EDITS.extend(run(page))
    option = SimpleNamespace(accept=asked)
    session = SimpleNamespace(config=SimpleNamespace(option=option))
    conftest.pytest_sessionfinish(session)
    conftest.EDITS.clear()
    assert (">>> 1\n1\n" in page.read_text()) == asked
    assert (f"Changed {page}: look" in capsys.readouterr().out) == asked
