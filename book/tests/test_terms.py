"""A page's first use of a word leads to the glossary, and no other use does."""

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pages import samples
from docutils.core import publish_doctree
from sphinx.addnodes import pending_xref

import regions
import site_pages

SAMPLES = samples("terms")
TEXTS = SAMPLES["texts"]


def link(text: str, page: str, folder: Path) -> list[str]:
    tree = publish_doctree(text, settings_overrides={"doctitle_xform": False})
    before = tree.astext()
    app: Any = SimpleNamespace(env=SimpleNamespace(docname=page), srcdir=folder)
    site_pages.link_terms(app, tree)
    assert tree.astext() == before
    return [xref["reftarget"] for xref in tree.findall(pending_xref)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "glossary.md").write_text(SAMPLES["glossary"])
    return tmp_path


@pytest.mark.parametrize("text", TEXTS)
def test_the_first_use_is_linked(text: str, folder: Path) -> None:
    assert link(text, "chapters/x", folder) == TEXTS[text]


@pytest.mark.parametrize("page", ["about/x", "reference/x"])
def test_pages_that_are_looked_up_are_left_alone(
    page: str, folder: Path
) -> None:
    assert link("A stub.", page, folder) == []


def test_all_words_of_the_glossary_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = regions.read_pages()["book/reference/glossary.md"]
    terms = site_pages.TERM.findall(text)
    assert len(terms) == text.count("\n\n", text.index("```{glossary}")) + 1
    assert set(terms) > site_pages.LOOSE
    # Each page is read anew for a new one. What prints it changes these two.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "path", sys.path.copy())
    conf = runpy.run_path(str(regions.ROOT / "book" / "conf.py"))
    assert set(terms) <= set(conf["printed_by"])
