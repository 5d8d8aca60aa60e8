"""What the book claims and the tests that prove it, checked both ways.

A page says {claim}`stream-order` after a sentence, and at least one test has
the mark `@pytest.mark.proves("stream-order")`. A row of a table has a name with
a dot, as in `proves("guard.exchangeDevice")`; a test that is made from the rows
of a table says `proves("frontend.*")`, for those that no other test names.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import filter as matching
from pathlib import Path

import regions
import rows

TESTS = ("backend/tests/test_*.py", "book/tests/test_*.py")
ROLE = re.compile(r"\{claim\}`([^`]*)`")
QUOTED = re.compile(r"``.*?``")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


@dataclass(frozen=True)
class Test:
    file: str  # "backend/tests/test_stream.py"
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"


def read_tests(root: Path = regions.ROOT) -> dict[str, str]:
    return regions.read(TESTS, root)


def find_claims(pages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each claim and where it is made; a fence makes none."""
    for page, text in pages.items():
        for number, line, kind in regions.scan(text):
            for name in () if kind else ROLE.findall(QUOTED.sub("", line)):
                yield name, f"{page}:{number}"


def find_tests(tests: Mapping[str, str]) -> dict[str, list[Test]]:
    """What the marks of test functions say, without running them."""
    found: dict[str, list[Test]] = {}
    for file, text in tests.items():
        if "mark.proves" not in text:  # parsing takes long
            continue
        for name, node in functions(ast.parse(text).body):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and (
                    ast.unparse(mark.func) == "pytest.mark.proves"
                ):
                    test = Test(file, name, node.lineno)
                    for claim in map(ast.literal_eval, mark.args):
                        found.setdefault(claim, []).append(test)
    return found


def with_rows(
    proving: Mapping[str, list[Test]], known: Mapping[str, bool | None]
) -> dict[str, list[Test]]:
    """The same with rows in place of a pattern: those that no test names."""
    found: dict[str, list[Test]] = {}
    for name, tests in proving.items():
        meant = matching(known, name) if "*" in name else []
        for one in [row for row in meant if row not in proving] or [name]:
            found.setdefault(one, []).extend(tests)
    return found


@functools.cache
def proofs() -> dict[str, list[Test]]:
    """Claim or row -> the tests of this tree that prove it. Parses them all."""
    known = rows.every(rows.read())
    found = with_rows(find_tests(read_tests()), known)
    return {name: found[name] for name in found if known.get(name, True)}


def functions(
    body: list[ast.stmt], within: str = ""
) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{within}{node.name}::")


def check(
    pages: Mapping[str, str],
    tests: Mapping[str, str],
    known: Mapping[str, bool | None],
) -> Iterator[str]:
    """What is claimed and not proven, or proven and not claimed."""
    proving = with_rows(find_tests(tests), known)
    made: dict[str, str] = {}
    for name, where in find_claims(pages):
        if not NAME.fullmatch(name):
            yield f"{where}: a claim is named in words-with-hyphens"
        if name in made:
            yield f"{where}: claim {name!r} is made at {made[name]}; link to it"
        made[name] = where
    for row, must in known.items():
        if must:
            made[row] = f"book/rows/{row.partition('.')[0]}.toml"
        elif must is False and row in proving:
            yield f"{proving[row][0]}: {row!r} says why no test proves it"
    for name, where in made.items():
        if name not in proving:
            yield (
                f"{where}: no test proves {name!r}; mark one with "
                f'@pytest.mark.proves("{name}")'
            )
    for name, by in proving.items():
        if name not in made and name not in known:
            yield f"{by[0]}: no page claims {name!r}, and no row has this name"
