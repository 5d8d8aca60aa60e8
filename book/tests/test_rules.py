"""The rules of listings and fences hold, and each one can fail."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from _pages import samples
from sybil import Document

import claims
import conftest
import regions
import rows

PAGES = regions.read_pages()
SAMPLES = samples("rules")
MARKERS, FENCES = SAMPLES["markers"], SAMPLES["fences"]

GOOD = "// [copy-strided] A copy that strides.\nint x;\n// [/copy-strided]\n"
COPY = "backend/csrc/aten/core/copy.cpp"
PAGE = "book/chapters/copy.md"


def show(name: str, file: str = COPY) -> str:
    return (
        f"```{{literalinclude}} ../../{file}\n"
        f':start-after: "[{name}]"\n:end-before: "[/{name}]"\n```\n'
    )


SHOWN = show("copy-strided")


def test_this_book_keeps_every_rule() -> None:
    wrong = regions.check(regions.read_sources(), PAGES)
    assert not wrong, "\n".join(["", *wrong])


# The last line of an example program: how it ends.
EXPECT = re.compile(
    r"(?:#|//) expect: (?:(?P<ok>ok)|exit (?P<exit>[1-9]\d*)|"
    r"build-error: (?P<says>.+))"
)


def check_examples(
    examples: Mapping[str, str],
    pages: Mapping[str, str],
    tests: Mapping[str, str],
) -> Iterator[str]:
    """Every program says how it ends, and a page or a test shows that."""
    consoles = [
        fence.body
        for page, text in pages.items()
        for fence in regions.find_fences(page, text)
        if fence.kind == "console"
    ]
    for file, text in examples.items():
        name = file.removeprefix("backend/examples/")
        end = EXPECT.fullmatch(text.rstrip().rpartition("\n")[2])
        runs = [
            body
            for body in consoles
            for named in re.findall(r"backend/examples/([\w*./]+)", body)
            if fnmatchcase(name, named)
        ]
        quoted = re.compile(
            rf'["/]{Path(file).stem}(?:{Path(file).suffix})?["\s]'
        )
        if end is None:
            yield f"{file}: its last line is no `expect: ok` or `exit N`"
            continue
        says = f"exit status {end['exit']}" if end["exit"] else end["says"]
        if says and not any(says in body for body in runs):
            yield f"{file}: no page shows its end, {says!r}"
        elif not runs and not any(map(quoted.search, tests.values())):
            yield f"{file}: no page and no test runs it"


def test_every_example_program_says_how_it_ends_and_is_run() -> None:
    tests = regions.read(("backend/tests/*.py", "book/tests/*.py"))
    tests["test_build_install.py"] = "\n".join(rows.load("build")["extension"])
    folder = "backend/examples/**/*"
    examples = regions.read((f"{folder}.cpp", f"{folder}.py"))
    assert len(examples) > 20
    wrong = list(check_examples(examples, PAGES, tests))
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("message", MARKERS)
def test_a_bad_marker_is_named_with_its_place(message: str) -> None:
    wrong = regions.check({COPY: MARKERS[message]}, {PAGE: ""})
    assert any(message in w and w.startswith(f"{COPY}:") for w in wrong), wrong


AGAIN = [(sample["says"], sample["page"]) for sample in SAMPLES["again"]]


@pytest.mark.parametrize(("message", "page"), [*FENCES.items(), *AGAIN])
def test_a_bad_fence_is_named_with_its_place(message: str, page: str) -> None:
    wrong = regions.check({COPY: GOOD}, {PAGE: page})
    places = f"{PAGE}:", f"{COPY}:"
    assert any(message in w and w.startswith(places) for w in wrong), wrong


def test_an_output_belongs_to_a_fence_of_its_page() -> None:
    pages = {"a.md": "```python\n1\n```\n", "b.md": "\n\n\n```output\n1\n```\n"}
    (wrong,) = regions.check({}, pages)
    assert "b.md:4: output stands right below" in wrong


# The version that a perishable fact was found in, and the one installed.
# A message that names another version than the installed one is no fact.
AS_OF = re.compile(
    r"(?:\(torch|holds for torch|(?<!against )(?<!but )PyTorch) (\d+\.\d+)\b"
)
PIN = re.compile(r'^torch = \["(\d+\.\d+)', re.M)


def check_versions(texts: Mapping[str, str]) -> Iterator[str]:
    """What was found in a version of PyTorch was found in the pinned one."""
    pin = PIN.search(texts.get("pyproject.toml", ""))
    for file, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for version in AS_OF.findall(line):
                if not pin or version != pin[1]:
                    yield (
                        f"{file}:{number}: was found in torch {version}, but "
                        f"torch {pin and pin[1]} is pinned; look again and "
                        f"mend the mark"
                    )


# Where a fact may stand that holds for one version of PyTorch.
FOLDERS = ("", ".ci/", "backend/**/", "book/**/")
DATED = ("c", "cpp", "h", "md", "py", "pyi", "toml", "txt")


def test_what_was_found_in_a_version_was_found_in_the_pinned_one() -> None:
    texts = regions.read(f"{f}*.{x}" for f in FOLDERS for x in DATED)
    assert {"README.md", "book/rows/hooks.toml", "noxfile.py"} < texts.keys()
    samples = re.compile("book/(?:_build|tests/samples)/")
    own = {f: text for f, text in texts.items() if not samples.match(f)}
    assert not list(check_versions(own))
    for fact in "(torch {})", "holds for torch {}", "and PyTorch {}.1":
        text = f"x\n# {fact.format('2.12')}"
        (wrong,) = check_versions({**own, "a.py": text})
        assert wrong.startswith("a.py:2: was found in torch 2.12, but torch")


def test_a_listing_follows_its_file() -> None:
    page = f"{SHOWN}\n````{{tab}} C++\n{show('copy-b')}````\n{show('x-y')}"
    moved = {"copy-strided": "backend/a.cpp", "copy-b": "book/chapters/b.h"}
    now = regions.relocate(PAGE, page, moved)
    assert now == page.replace(
        f"../../{COPY}", "../../backend/a.cpp", 1
    ).replace(f"../../{COPY}", "b.h", 1)
    assert regions.relocate(PAGE, now, moved) == now


EXAMPLE = "backend/examples/end.py"


def test_a_program_says_how_it_ends_and_is_run() -> None:
    for sample in SAMPLES["programs"]:
        text, says = sample["text"], sample["says"]
        pages, tests = {PAGE: sample["page"]}, {"test_x.py": sample["test"]}
        wrong = list(check_examples({EXAMPLE: text}, pages, tests))
        assert len(wrong) == bool(says), sample
        assert all(f"{EXAMPLE}: " in w and says in w for w in wrong), wrong


@pytest.mark.parametrize("page", PAGES)
def test_pytest_takes_every_page_for_tests(
    page: str, request: pytest.FixtureRequest
) -> None:
    path = regions.ROOT / page
    (sybil,) = conftest.pytest_collect_file(path, request.session).sybils
    assert sybil.setup is conftest.begin_page
    assert sybil.teardown is conftest.end_page


def collected(text: str) -> int:
    return sum(1 for _ in conftest.collect(Document(text, "page.md")))


@pytest.mark.parametrize("page", PAGES)
def test_pytest_collects_every_example(page: str) -> None:
    assert collected(PAGES[page]) == regions.count_examples(PAGES[page])


@pytest.mark.parametrize("line", [">>> x", "> >>> x", "1. >>> x", "* >>> x"])
def test_a_prompt_outside_of_a_fence_is_found(line: str) -> None:
    assert len(list(regions.check_prompts(PAGE, f"```text\n```\n{line}"))) == 1
    assert not list(regions.check_prompts(PAGE, f"```python\n{line}\n```"))
    fenced = f"```text\n```python\n{line}\n```"  # ends in its last line
    assert not list(regions.check_prompts(PAGE, fenced))


def test_this_book_and_its_tests_agree_on_claims() -> None:
    wrong = list(
        claims.check(PAGES, claims.read_tests(), rows.every(rows.read()))
    )
    assert not wrong, "\n".join(["", *wrong])
    assert len(list(claims.find_claims(PAGES))) > 40


# Folders of the reader's, which may have a space in their name.
FOLDER = re.compile(r"\$(REPO|PWD|lib|stub|root|torch|include)\b")


def bare(command: str) -> list[str]:
    """The folders that bash would split; not so where a name is given one."""
    text = re.sub(r"\"[^\"]*\"|'[^']*'|\b\w+=\S*", "", command)
    return FOLDER.findall(text)


def test_a_folder_with_a_space_is_one_word_in_every_command() -> None:
    assert bare('cp "$REPO"/a . && P=$PWD/a ls -I"$torch/x"') == []
    assert bare("cp $REPO/a -I$torch/x") == ["REPO", "torch"]
    assert {
        f"{page}: {line}": bare(line)
        for page, text in PAGES.items()
        for fence in regions.find_fences(page, text)
        if fence.kind == "console"
        for line in fence.body.splitlines()
        if line.startswith(("$ ", "> ")) and bare(line)
    } == {}
