"""What is kept from one print to the next, and what ends that."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import claims
import footer
import regions
from tables import kept

TABLE = """
from pathlib import Path
import fresh_words
here = Path(__file__).parent
def shelf():
    names = sorted(path.name for path in here.glob("*.txt"))
    return " ".join([fresh_words.word, (here / "one.txt").read_text(), *names])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "book" / "_ext"
    folder.mkdir(parents=True)
    (folder / "fresh_words.py").write_text("word = 'Names:'\n")
    (folder / "fresh_shelf.py").write_text(TABLE)
    (folder / "one.txt").write_text("1")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(kept, "OURS", re.compile(re.escape(str(folder))))
    monkeypatch.setattr(kept, "OPENED", defaultdict(set))
    monkeypatch.setattr(kept, "module_of", lambda name: "fresh_shelf")
    monkeypatch.setattr(kept, "asked", lambda modules: set())
    for name in ("fresh_shelf", "fresh_words"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def later(path: Path, text: str) -> None:
    """Writes as an editor would some time after the print."""
    path.write_text(text)
    for changed in (path, path.parent):
        now = changed.stat().st_mtime_ns + 10_000_000
        os.utime(changed, ns=(now, now))


EDITS: dict[str, Callable[[Path], None]] = {
    "a file that it read": lambda f: later(f / "one.txt", "2"),
    "a file in a folder that it listed": lambda f: later(f / "two.txt", ""),
    "the module that it is in": lambda f: later(f / "fresh_shelf.py", TABLE),
    "a module that this one imports": lambda f: later(
        f / "fresh_words.py", "word = 'Others:'\n"
    ),
    "a file that is gone": lambda f: (f / "one.txt").unlink(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_table_is_made_again_after_an_edit_of(
    folder: Path, edit: str
) -> None:
    env = SimpleNamespace(docname="page")
    assert kept.table(env, "shelf") == "Names: 1 one.txt"
    sys.modules["fresh_shelf"].shelf = lambda: "made again"
    assert kept.outdated(None, env, set(), set(), set()) == []
    assert kept.table(env, "shelf") == "Names: 1 one.txt"
    EDITS[edit](folder)
    assert kept.outdated(None, env, set(), set(), set()) == ["page"]
    assert kept.table(env, "shelf") == "made again"


def test_what_a_table_has_read_counts_for_its_neighbours(folder: Path) -> None:
    """One may have kept in a cache what both are made from."""
    env = SimpleNamespace(docname="page")
    kept.table(env, "shelf")
    env.docname = "other"
    sys.modules["fresh_shelf"].shelf = lambda: "from a cache"
    kept.table(env, "shelf")
    later(folder / "one.txt", "2")
    assert kept.outdated(None, env, set(), set(), set()) == ["page", "other"]


SECOND = "import json; print(json.dumps(['shelf', 'by the second', {}]))"


@pytest.mark.parametrize(
    ("second", "text"),
    [(SECOND, "by the second"), ("raise SystemExit(3)", "Names: 1 one.txt")],
    ids=["succeeds", "fails"],
)
def test_what_takes_longest_is_made_by_a_second_process_and_else_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, second: str, text: str
) -> None:
    env = SimpleNamespace(docname="page")
    monkeypatch.setattr(kept, "LONG", {"page": ["shelf"]})
    monkeypatch.setattr(kept, "SEND", second)
    kept.start(None, env, ["other"])
    assert not kept.HELPERS
    kept.start(None, env, ["page"])
    assert kept.HELPERS.keys() == {"shelf"}
    assert kept.table(env, "shelf") == text
    kept.start(None, env, ["page"])
    assert not kept.HELPERS  # it is kept now


def test_the_second_process_sends_what_would_be_made_here(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["-c", "shelf"])
    kept.send()
    name, text, stamps = json.loads(capsys.readouterr().out)
    assert (name, text, stamps) == ("shelf", *kept.make("shelf"))
    assert str(folder / "one.txt") in stamps


def test_what_takes_longest_stands_on_its_page() -> None:
    for page, names in kept.LONG.items():
        text = (regions.ROOT / "book" / f"{page}.md").read_text("utf-8")
        for name in names:
            assert f"```{{generated}} {name}\n" in text


def test_the_package_and_the_last_run_count_for_every_table() -> None:
    files = {Path(file).name for file in kept.asked(len(sys.modules))}
    assert {"proof.json", "version.py", "__init__.py"} <= files
    assert {"libopenreg.so", "libtorch_openreg.so"} <= files


def test_a_page_of_a_claim_is_read_again_for_another_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = claims.Test("backend/tests/test_a.py", "test_a", 7)
    env = SimpleNamespace(openreg_claims={"page": {"a-claim": [test]}})
    lower = claims.Test(test.file, test.name, 8)
    for by, pages in ([test], []), ([test, lower], ["page"]), ([], ["page"]):
        proofs = dict.fromkeys(["a-claim"] * bool(by), by)
        monkeypatch.setattr(claims, "proofs", lambda proofs=proofs: proofs)
        assert footer.outdated(None, env, set(), set(), set()) == pages
    footer.forget_page(None, env, "page")
    assert footer.outdated(None, env, set(), set(), set()) == []
