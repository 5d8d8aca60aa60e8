"""A tiny book that is right, and one for each mistake that must turn red.

The checks are all run together on each, so none may be silent, and none may
take one mistake for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pages import failures
from test_site import Page, dead_links, foreign, machine_paths

import claims
import conftest
import proof
import regions
import rows

PAGE = "book/chapters/copy.md"
COPY = "backend/csrc/aten/copy.cpp"
END = "backend/examples/end.py"
TEST = "backend/tests/test_copy.py"
SITE = "copy.html"


@dataclass
class Book:
    """Every text is under the name that its file would have."""

    sources: dict[str, str] = field(
        default_factory=lambda: {
            COPY: "// [copy-two] Two.\nint x;\nf();\n// [/copy-two]\n"
            "// [copy-two-more] Longer.\ng();\n// [/copy-two-more]\n",
            "pyproject.toml": 'dependencies = ["torch==2.13.0"]\n',
        }
    )
    pages: dict[str, str] = field(
        default_factory=lambda: {
            PAGE: """# Copies

A copy is whole (torch 2.13). {claim}`copy-whole`

```{literalinclude} ../../backend/csrc/aten/copy.cpp
:start-after: "[copy-two]"
:end-before: "[/copy-two]"
```

```{literalinclude} ../../backend/csrc/aten/copy.cpp
:start-after: "[copy-two-more]"
:end-before: "[/copy-two-more]"
```

```python
print(6 * 7)
```

```output
42
```

```python
>>> 6 * 7
42
```

```console
$ python $REPO/backend/examples/end.py || echo "exit status $?"
exit status 3
```
"""
        }
    )
    examples: dict[str, str] = field(
        default_factory=lambda: {
            END: "raise SystemExit(3)\n\n# expect: exit 3\n"
        }
    )
    tests: dict[str, str] = field(
        default_factory=lambda: {
            TEST: '@pytest.mark.proves("copy-whole", "copy.whole")\n'
            "def test_copy(): ...\n"
        }
    )
    rows: dict[str, str] = field(
        default_factory=lambda: {"book/rows/copy.toml": "[whole]\n"}
    )
    counts: dict[str, dict[int, int]] = field(
        default_factory=lambda: {COPY: {3: 1, 6: 1}}
    )
    ran: int = 3
    site: str = '<h1 id="copies">Copies</h1><a href="#copies">up</a>'

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


MISTAKES = {
    "wrong output": ("```output\n42", "```output\n43", "printed text differs"),
    "wrong answer": (">>> 6 * 7\n42", ">>> 6 * 7\n43", "Expected:\n    43"),
    "wrong exit": (
        "exit status 3\n",
        "exit status 4\n",
        "no page shows its end",
    ),
    "orphan marker": (
        "int x;\nf();\n// [/copy-two]\n",
        "int x;\nf();\n",
        "opens inside [copy-two]",
    ),
    "end of a longer name": (
        "// [/copy-two]\n",
        "// [/copy-two-more]\n",
        "closes what is not open",
    ),
    "prefix of a name": (
        ':start-after: "[copy-two-more]"\n:end-before: "[/copy-two-more]"',
        ':start-after: "[copy-two-mo]"\n:end-before: "[/copy-two-mo]"',
        "there is no region [copy-two-mo]",
    ),
    "end of another region": (
        ':end-before: "[/copy-two]"',
        ':end-before: "[/copy-two-more]"',
        "names its region by both markers",
    ),
    "file that moved": (
        'copy.cpp\n:start-after: "[copy-two]"',
        'view.cpp\n:start-after: "[copy-two]"',
        "[copy-two] stands in backend/csrc/aten/copy.cpp, not in",
    ),
    "region that no page shows": (
        "```{literalinclude} ../../backend/csrc/aten/copy.cpp\n"
        ':start-after: "[copy-two-more]"\n'
        ':end-before: "[/copy-two-more]"\n```\n',
        "",
        "[copy-two-more] is shown by no page",
    ),
    "unknown fence": (
        "```console\n",
        "```bash\n",
        "unknown kind of fence 'bash'",
    ),
    "code typed by hand": (
        "# Copies\n",
        "# Copies\n\n```cpp\nint x;\n```\n",
        "cpp is not typed into a page",
    ),
    "code typed as HTML": (
        "# Copies\n",
        "# Copies\n\n<pre>int x;</pre>\n",
        "<pre is HTML",
    ),
    "prompt that nothing runs": (
        "# Copies\n",
        "# Copies\n\n> >>> x + 1\n",
        ">>> runs in a python fence",
    ),
    "example that pytest passes over": (
        "# Copies\n",
        "# Copies\n\n:::{raw} x\n```python\nx\n```\n:::\n",
        "3 of 4 examples ran",
    ),
    "missing outcome": ("# expect: exit 3\n", "", "its last line is no"),
    "row without a test": (
        "[whole]\n",
        "[whole]\n[half]\n",
        "no test proves 'copy.half'",
    ),
    "test without a row": (
        '"copy.whole"',
        '"copy.whole", "copy.half"',
        "no page claims 'copy.half'",
    ),
    "claim without a test": (
        '"copy-whole"',
        '"copy-else"',
        "no test proves 'copy-whole'",
    ),
    "test without a claim": (
        " {claim}`copy-whole`",
        "",
        "no page claims 'copy-whole'",
    ),
    "fact of another version": (
        "(torch 2.13)",
        "(torch 2.12)",
        "was found in torch 2.12",
    ),
    "dead anchor": ('href="#copies"', 'href="#copy"', "has no such anchor"),
    "something of another host": (
        "<h1",
        '<img src="https://example.org/x.png" alt="x"><h1',
        "loads https://example.org",
    ),
    "absolute path": (
        ">Copies<",
        f">{regions.ROOT}/noxfile.py<",
        f"contains {regions.ROOT}",
    ),
}


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    return lambda book: check(book, tmp_path, monkeypatch)


def test_the_tiny_book_is_right(checked) -> None:
    assert checked(Book()) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_turns_red_with_its_own_message(
    mistake: str, checked
) -> None:
    old, new, says = MISTAKES[mistake]
    book = Book()
    book.change(old, new)
    wrong = checked(book)
    assert any(says in sentence for sentence in wrong), wrong


def test_a_dead_region_turns_red(checked) -> None:
    book = Book()
    book.counts[COPY][6] = 0
    assert checked(book) == [
        f"{COPY}:6: [copy-two-more] of {PAGE}: no test runs line 6 (g();)"
    ]


def test_each_message_belongs_to_one_mistake(checked) -> None:
    assert len({says for _, _, says in MISTAKES.values()}) == len(MISTAKES)
