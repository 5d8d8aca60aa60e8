"""The rules of listings and fences hold, and each one can fail."""

import re
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
COPY = "backend/csrc/aten/copy.cpp"
PAGE = "book/chapters/copy.md"


def show(name: str, file: str = COPY, end: str = "") -> str:
    return (
        f"```{{literalinclude}} ../../{file}\n"
        f':start-after: "[{name}]"\n:end-before: "[/{end or name}]"\n```\n'
    )


SHOWN = show("copy-strided")


def test_this_book_keeps_every_rule() -> None:
    wrong = regions.check(regions.read_sources(), PAGES)
    assert not wrong, "\n".join(["", *wrong])


def test_every_example_program_says_how_it_ends_and_is_run() -> None:
    tests = regions.read(("backend/tests/*.py", "book/tests/*.py"))
    tests["test_build_install.py"] = "\n".join(rows.load("build")["extension"])
    folder = "backend/examples/**/*"
    examples = regions.read((f"{folder}.cpp", f"{folder}.py"))
    assert len(examples) > 20
    wrong = list(regions.check_examples(examples, PAGES, tests))
    assert not wrong, "\n".join(["", *wrong])


def test_a_good_book_breaks_no_rule() -> None:
    page = SHOWN + "```python\nprint(1)\n```\n\n```output\n1\n```\n"
    assert regions.check({COPY: GOOD}, {PAGE: page}) == []
    longest = GOOD.replace("int x;\n", "int x;\n" * 40 + "\n")
    assert regions.check({COPY: longest}, {PAGE: page}) == []


@pytest.mark.parametrize("message", MARKERS)
def test_a_bad_marker_is_named_with_its_place(message: str) -> None:
    wrong = regions.check({COPY: MARKERS[message]}, {PAGE: ""})
    assert any(message in w and w.startswith(f"{COPY}:") for w in wrong), wrong


PYPROJECT = {"pyproject.toml": 'dependencies = ["torch==2.13.0"]'}


AGAIN = [(sample["says"], sample["page"]) for sample in SAMPLES["again"]]


@pytest.mark.parametrize(("message", "page"), [*FENCES.items(), *AGAIN])
def test_a_bad_fence_is_named_with_its_place(message: str, page: str) -> None:
    wrong = regions.check({COPY: GOOD, **PYPROJECT}, {PAGE: page})
    assert any(message in w and w.startswith(f"{PAGE}:") for w in wrong), wrong


def test_what_only_looks_like_html_is_right() -> None:
    page = (
        '<details class="answer"><summary>Answer</summary>\n</details>\n'
        "`<c10/x.h>`, ``a ` <b>`` and <https://x.example>, if 1 < a\n"
        '```{pytorch} x.h\n:start-at: "at<b>()"\n```\n'
        "```text\n<pre>\n```\n"
    )
    assert not list(regions.check_html(PAGE, page))


def test_an_output_belongs_to_a_fence_of_its_page() -> None:
    pages = {"a.md": "```python\n1\n```\n", "b.md": "\n\n\n```output\n1\n```\n"}
    (wrong,) = regions.check({}, pages)
    assert "b.md:4: output stands right below" in wrong


@pytest.mark.parametrize("kind", regions.KINDS)
def test_a_good_fence_is_right(kind: str) -> None:
    bodies = {
        "console": "$ ls",
        "text": "costs 5 $ or more",
        "md": "f()  # doctest: +SKIP",
        "{eval-rst}": ".. currentmodule:: a\n\n.. autodata:: f\n   :no-value:",
    }
    page = f"````{kind}\n{bodies.get(kind, 'x')}\n````\n"
    above = "```python\nx\n```\n\n" if kind == "output" else ""
    fences = list(regions.find_fences("book/about/style.md", above + page))
    assert not [w for f in fences for w in regions.check_fence(f)]
    assert not list(regions.check_outputs(fences))


def test_only_the_version_that_is_pinned_is_right() -> None:
    text = "So it is (torch 2.13)."
    assert regions.check(PYPROJECT, {PAGE: text}) == []
    assert len(regions.check({}, {PAGE: text})) == 1
    assert (
        len(regions.check({**PYPROJECT, "a.py": f"# {text[:-3]}2)"}, {})) == 1
    )


@pytest.mark.parametrize(
    ("file", "name", "comment"),
    [
        ("backend/device/memory.cpp", "dev-take", "// {}"),
        ("backend/device/openreg.h", "dev-malloc", "/* {} */"),
        (
            "backend/csrc/runtime/host_allocator.cpp",
            "host-allocator-a",
            "// {}",
        ),
        ("backend/torch_openreg/csrc/stub.c", "stub-entry", "/* {} */"),
        ("backend/torch_openreg/__init__.py", "py-autoload", "    # {}"),
        ("backend/CMakeLists.txt", "cmake-rpath", "# {}"),
        ("pyproject.toml", "pyproject-entry", "# {}"),
        ("noxfile.py", "nox-shared", "# {}"),
    ],
)
def test_names_and_comments_of_every_language(
    file: str, name: str, comment: str
) -> None:
    lines = f"[{name}] A sentence.", "x", f"[/{name}]"
    text = "\n".join((comment.format(lines[0]), "x", comment.format(lines[2])))
    assert regions.check({file: text}, {PAGE: show(name, file)}) == []
    assert regions.find_regions({file: text}) == (
        [regions.Region(name, file, 2, "A sentence.", ("x",))],
        [],
    )


@pytest.mark.parametrize(
    "file",
    [
        *("conftest.py", "noxfile.py", "pyproject.toml"),
        *("backend/CMakeLists.txt", "backend/examples/x/CMakeLists.txt"),
        *("backend/device/x.cpp", "backend/device/x.h", "backend/csrc/x/y.cpp"),
        *("backend/torch_openreg/x/y.c", "backend/torch_openreg/x.pyi"),
        *("backend/examples/x.py", "book/_ext/tables/x.py"),
    ],
)
def test_markers_are_looked_for_in(file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("x")
    assert regions.read_sources(tmp_path) == {file: "x"}


def test_a_page_shows_what_its_listings_name() -> None:
    page = show("a-b") + "```{drawing} c-d\n```\n"
    assert regions.pages_of({PAGE: page}) == {"a-b": PAGE}


def test_a_listing_follows_its_file() -> None:
    page = f"{SHOWN}\n````{{tab}} C++\n{show('copy-b')}````\n{show('x-y')}"
    moved = {"copy-strided": "backend/a.cpp", "copy-b": "book/chapters/b.h"}
    now = regions.relocate(PAGE, page, moved)
    assert now == page.replace(
        f"../../{COPY}", "../../backend/a.cpp", 1
    ).replace(f"../../{COPY}", "b.h", 1)
    assert regions.relocate(PAGE, now, moved) == now


def test_what_was_printed_is_no_page(tmp_path: Path) -> None:
    for folder in ("book/_build/html", "book/about"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.md").write_text("x")
    assert list(regions.read_pages(tmp_path)) == ["book/about/x.md"]


EXAMPLE = "backend/examples/end.py"


def test_a_program_says_how_it_ends_and_is_run() -> None:
    for sample in SAMPLES["programs"]:
        text, says = sample["text"], sample["says"]
        pages, tests = {PAGE: sample["page"]}, {"test_x.py": sample["test"]}
        wrong = list(regions.check_examples({EXAMPLE: text}, pages, tests))
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


def test_examples_in_tabs_and_notes_are_collected() -> None:
    tab = "````{tabs}\n```{group-tab} A\n~~~python\n1\n~~~\n```\n````\n"
    notes = "".join(
        f":::{kind}\n```console\n$ ls\n```\n:::\n"
        for kind in sorted(regions.CONTAINERS)
    )
    items = "".join(
        f"{mark} ```python\n{' ' * len(mark)} 1\n{' ' * len(mark)} ```\n\n"
        for mark in ("-", "*", "+", "1.")
    )
    quoted = "> ```python\n> 1\n> ```\n\nText.\n\n  ```python\n  1\n  ```\n"
    page = tab + notes + items + quoted + ":::python\n1\n:::\n"
    assert collected(page) == 1 + len(regions.CONTAINERS) + 4 + 2 + 1
    assert regions.count_examples(page) == collected(page)


KNOWN = {"tabs", "tab", "group-tab", "note", "tip", "warning", "admonition"}


def test_each_container_is_one_that_sphinx_has() -> None:
    assert {kind.strip("{}") for kind in regions.CONTAINERS} == KNOWN


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
