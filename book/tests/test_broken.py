"""A tiny book that is right, and one for each mistake that must turn red.

The checks are all run together on each, so none may be silent, and none may
take one mistake for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pages import failures, samples
from test_site import Page, dead_links, foreign, machine_paths

import claims
import conftest
import proof
import regions
import rows

PAGE = "book/chapters/copy.md"
COPY = "backend/csrc/aten/copy.cpp"
SITE = "copy.html"


@dataclass
class Book:
    """Every text is under the name that its file would have."""

    site: str
    sources: dict[str, str]
    pages: dict[str, str]
    examples: dict[str, str]
    tests: dict[str, str]
    rows: dict[str, str]
    counts: dict[str, dict[int, int]] = field(
        default_factory=lambda: {COPY: {3: 1, 6: 1}}
    )
    ran: int = 3

    def change(self, old: str, new: str) -> None:
        """Replaces the one text, wherever it stands."""
        found = 0
        for texts in (
            *(self.sources, self.pages, self.examples),
            *(self.tests, self.rows),
        ):
            for name, text in texts.items():
                found += text.count(old)
                texts[name] = text.replace(old, new)
        found += self.site.count(old)
        self.site = self.site.replace(old, new)
        assert found == 1, f"{old!r} stands {found} times"


def run_examples(book: Book, root: Path) -> Iterator[str]:
    for file, text in book.examples.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for page, text in book.pages.items():
        yield from map(str, failures(page, text))
    conftest.EDITS.clear()


def check(book: Book, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that this project checks of its own book."""
    wrong = regions.check(book.sources, book.pages)
    wrong += regions.check_examples(book.examples, book.pages, book.tests)
    wrong += claims.check(book.pages, book.tests, rows.every(book.rows))
    found, _ = regions.find_regions(book.sources)
    shown = regions.pages_of(book.pages)
    wrong += proof.unproven(
        [(shown.get(r.name, ""), r) for r in found if r.file in book.counts],
        book.counts,
        excused={},
    )
    wrong += proof.unrun(book.pages, {PAGE: ["line"] * book.ran})
    with monkeypatch.context() as patch:
        patch.setattr(regions, "ROOT", root)
        wrong += run_examples(book, root)
    path = root / SITE
    path.write_text(book.site)
    pages = {path: Page(book.site)}
    wrong += dead_links(pages)
    wrong += foreign(pages, {})
    wrong += machine_paths({path: book.site})
    return wrong


MISTAKES = samples("broken") | {
    "absolute path": {
        "old": ">Copies<",
        "new": f">{regions.ROOT}/noxfile.py<",
        "says": f"contains {regions.ROOT}",
    },
}


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    return lambda book: check(book, tmp_path, monkeypatch)


def test_the_tiny_book_is_right(checked) -> None:
    assert checked(Book(**samples("tiny"))) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_turns_red_with_its_own_message(
    mistake: str, checked
) -> None:
    book, sample = Book(**samples("tiny")), MISTAKES[mistake]
    book.change(sample["old"], sample["new"])
    wrong = checked(book)
    assert any(sample["says"] in sentence for sentence in wrong), wrong


def test_a_dead_region_turns_red(checked) -> None:
    book = Book(**samples("tiny"))
    book.counts[COPY][6] = 0
    assert checked(book) == [
        f"{COPY}:6: [copy-two-more] of {PAGE}: no test runs line 6 (g();)"
    ]


def test_each_message_belongs_to_one_mistake(checked) -> None:
    says = {sample["says"] for sample in MISTAKES.values()}
    assert len(says) == len(MISTAKES)
