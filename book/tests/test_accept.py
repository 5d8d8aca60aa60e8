"""`nox -s accept`: what it writes passes afterwards, and what held stays."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pages import failures, samples

import accept
import conftest

CHANGES = samples("accept")


def run(page: Path) -> list[accept.Edit]:
    """What running the page would change."""
    conftest.EDITS.clear()
    for _ in failures(str(page), page.read_text()):
        assert conftest.EDITS
    edits = list(conftest.EDITS)
    conftest.EDITS.clear()
    return edits


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_printed_is_written(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(CHANGES[name]["before"])
    assert accept.write(run(page)) == [str(page)]
    assert page.read_text() == CHANGES[name]["after"]
    assert run(page) == []


def test_a_command_that_fails_is_not_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo a\nb\n$ false\n```\n")
    (failure,) = failures(str(page), page.read_text())
    with pytest.raises(AssertionError, match="prints something else"):
        raise failure
    assert conftest.EDITS == []


PLACES = {"root": accept.ROOT, "tmp": tempfile.gettempdir()}


@pytest.mark.parametrize("name", accept.NORMALISERS)
def test_what_varies_is_shown_as_dots(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, stands = samples("normal")[name]
    text = text.format_map(PLACES)
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
    asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> 1\n2\n```\n")
    conftest.EDITS.extend(run(page))
    option = SimpleNamespace(accept=asked)
    session: Any = SimpleNamespace(config=SimpleNamespace(option=option))
    conftest.pytest_sessionfinish(session)
    conftest.EDITS.clear()
    assert (">>> 1\n1\n" in page.read_text()) == asked
    assert (f"Changed {page}: look" in capsys.readouterr().out) == asked
