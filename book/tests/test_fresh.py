"""What ends the life of a page's tables, and of its claims."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import claims
import footer
import listing
import regions
import tables

# What is made from the sources, and needs no pattern of its own.
MADE = re.compile(r"/(?:__pycache__|_build|build|\.\w+)(?:/|$)")
opened: list[str] | None = None


def note(event: str, args: tuple[object, ...]) -> None:
    if opened is not None and event in ("open", "os.scandir", "os.listdir"):
        opened.append(str(args[0]))


sys.addaudithook(note)


@contextmanager
def opening() -> Iterator[list[str]]:
    """The files and folders that are opened meanwhile."""
    global opened
    opened = []
    try:
        yield opened
    finally:
        opened = None


def shown_tables() -> list[str]:
    return sorted(
        fence.argument
        for page, text in regions.read_pages().items()
        for fence in regions.find_fences(page, text)
        if fence.kind == "{generated}"
    )


def forget(names: list[str]) -> None:
    """What a cache has from before would not be read again."""
    for name in names:
        for value in vars(sys.modules[name]).values():
            getattr(value, "cache_clear", lambda: None)()


@pytest.mark.parametrize("name", shown_tables())
def test_a_table_names_what_it_reads(name: str) -> None:
    patterns = tables.behind(name)
    forget(
        [n for n in sys.modules if n.startswith(("tables.", "regions", "rows"))]
    )
    before = set(sys.modules)
    with opening() as files:
        tables.make(name)
    # A warning quotes the lines that led to it.
    ours, stack = str(regions.ROOT), {__file__, tables.__file__}
    read = {f for f in files if f.startswith(ours) and not MADE.search(f)}
    imported = {
        str(sys.modules[n].__file__ or "")
        for n in set(sys.modules) - before
        if "/backend/tests/" in str(getattr(sys.modules[n], "__file__", ""))
    }
    known = tables.stamps(patterns).keys()
    missing = {
        f
        for f in (read | imported) - stack
        if os.path.isfile(f) and f not in known
    }
    assert not missing, f"add to READS of the module of {name}: {missing}"


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A module of tables, and the folder that it reads."""
    (tmp_path / "one.txt").write_text("1")
    (tmp_path / "shelf.py").write_text("import tables.words\n")
    (tmp_path / "words.py").write_text("")
    for name in ("shelf", "words"):
        module = ModuleType(f"tables.{name}")
        module.__file__ = str(tmp_path / f"{name}.py")
        module.READS = (f"{tmp_path}/*.txt",)
        monkeypatch.setitem(sys.modules, f"tables.{name}", module)
    return tmp_path


def later(path: Path, text: str = "") -> None:
    """Writes as an editor would some time after the print."""
    path.write_text(text)
    now = path.stat().st_mtime_ns + 10_000_000
    os.utime(path, ns=(now, now))


EDITS: dict[str, Callable[[Path], None]] = {
    "a file that it reads": lambda f: later(f / "one.txt", "2"),
    "a new file of a pattern": lambda f: later(f / "two.txt"),
    "a file that is gone": lambda f: (f / "one.txt").unlink(),
    "the module that it is in": lambda f: later(f / "shelf.py"),
    "a module that this one imports": lambda f: later(f / "words.py"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_page_is_read_again_after_an_edit_of(shelf: Path, edit: str) -> None:
    patterns = tables.behind("shelf")
    made = {"page": (patterns, tables.stamps(patterns))}
    env = SimpleNamespace(openreg_tables=made)
    assert listing.outdated(None, env, set(), set(), set()) == []
    EDITS[edit](shelf)
    assert listing.outdated(None, env, set(), set(), set()) == ["page"]


def test_the_package_counts_for_every_table(shelf: Path) -> None:
    names = {Path(f).name for f in tables.stamps(tables.behind("shelf"))}
    assert {"version.py", "__init__.py", "shelf.py", "words.py"} <= names
    assert {"libopenreg.so", "libtorch_openreg.so"} <= names


def test_what_two_processes_have_read_is_joined() -> None:
    claim = {"a-claim": [claims.Test("backend/tests/test_a.py", "test_a", 7)]}
    region = regions.Region("a-b", "a.cpp", 1, "A.", ("x",))
    envs = [
        SimpleNamespace(
            openreg_shown=[(page, region)],
            openreg_tables={page: ({page}, {})},
            openreg_claims={page: claim},
        )
        for page in ("mine", "theirs")
    ]
    for merge in listing.merge, footer.merge:
        merge(None, envs[0], {"theirs"}, envs[1])
    assert [page for page, _ in envs[0].openreg_shown] == ["mine", "theirs"]
    assert set(envs[0].openreg_tables) == {"mine", "theirs"}
    assert set(envs[0].openreg_claims) == {"mine", "theirs"}
    listing.forget_page(None, envs[0], "theirs")
    footer.forget_page(None, envs[0], "theirs")
    assert set(envs[0].openreg_tables) == {"mine"}
    assert set(envs[0].openreg_claims) == {"mine"}


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
