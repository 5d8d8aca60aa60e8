"""The rules of listings and fences hold, and each one can fail."""

import pytest
from sybil import Document

import claims
import regions
from conftest import collect

PAGES = regions.read_pages()

GOOD = "// [copy-strided] A copy that strides.\nint x;\n// [/copy-strided]\n"
SHOWN = "```{listing} copy-strided\n```\n"
COPY = "backend/csrc/aten/copy.cpp"
PAGE = "book/chapters/copy.md"


def test_this_book_keeps_every_rule() -> None:
    wrong = regions.check(regions.read_sources(), PAGES)
    assert not wrong, "\n".join(["", *wrong])


def test_every_example_program_says_how_it_ends_and_is_run() -> None:
    tests = regions.read(("backend/tests/*.py", "book/tests/*.py"))
    examples = regions.read(("backend/examples/*.*",))
    assert len(examples) > 15
    assert list(regions.check_examples(examples, PAGES, tests)) == []


def test_a_good_book_breaks_no_rule() -> None:
    page = SHOWN + "```python\nprint(1)\n```\n\n```output\n1\n```\n"
    assert regions.check({COPY: GOOD}, {PAGE: page}) == []


MARKERS = {
    "never closed": "// [copy-a] A.\nint x;\n",
    "closes what is not open": "int x;\n// [/copy-a]\n",
    "opens inside": "// [copy-a] A.\n// [copy-b] B.\nint x;\n// [/copy-b]\n",
    "already at": GOOD + GOOD,
    "must begin with 'copy-'": "// [view-a] A.\nint x;\n// [/view-a]\n",
    "needs a sentence": "// [copy-a] No stop\nint x;\n// [/copy-a]\n",
    "is empty": "// [copy-a] A.\n\n// [/copy-a]\n",
    "has 41 lines": "// [copy-a] A.\n" + "int x;\n" * 41 + "// [/copy-a]\n",
    "shown by no page": "// [copy-a] A.\nint x;\n// [/copy-a]\n",
}


@pytest.mark.parametrize("message", MARKERS)
def test_a_bad_marker_is_named_with_its_place(message: str) -> None:
    wrong = regions.check({COPY: MARKERS[message]}, {PAGE: ""})
    assert any(message in w and w.startswith(f"{COPY}:") for w in wrong), wrong


FENCES = {
    "there is no region [copy-a]": "```{listing} copy-a\n```\n",
    "is shown 2 times": SHOWN + SHOWN,
    "cpp is not typed into a page": "```cpp\nint x;\n```\n",
    "unknown kind of fence 'bash'": "```bash\nls\n```\n",
    "unknown kind of fence ''": "```\nls\n```\n",
    "unknown kind of fence '(indented)'": "Text\n\n    x = 1\n",
    "unknown kind of fence '{literalinclude}'": "```{literalinclude} x\n```\n",
    "unknown kind of fence 'yaml'": ":::{note}\n```yaml\na: 1\n```\n:::\n",
    "'foo' after python means nothing": "```python foo\n1\n```\n",
    "md fences stand in book/about": "````md\n```python\n```\n````\n",
    "a text fence is not run": "```text\n>>> 1 + 1\n```\n",
    "begins with a command": "```console\nls\n```\n",
    "no example is skipped": "```python\n>>> f()  # doctest: +SKIP\n```\n",
    "eval-rst is for autodoc": "```{eval-rst}\n.. note:: x\n```\n",
    "output stands right below": "```python\n1\n```\nX.\n\n```output\n1\n```",
    ">>> runs in a python fence": "Type >>> x\n",
    "was found in torch 2.12, but torch 2.13 is": "So it is (torch 2.12).\n",
}
PYPROJECT = {"pyproject.toml": 'dependencies = ["torch==2.13.0"]'}


@pytest.mark.parametrize("message", FENCES)
def test_a_bad_fence_is_named_with_its_place(message: str) -> None:
    wrong = regions.check({COPY: GOOD, **PYPROJECT}, {PAGE: FENCES[message]})
    assert any(message in w and w.startswith(f"{PAGE}:") for w in wrong), wrong


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
    assert (
        regions.check({file: text}, {PAGE: f"```{{listing}} {name}\n```"}) == []
    )
    assert regions.find_regions({file: text}) == (
        [regions.Region(name, file, 2, "A sentence.", ("x",))],
        [],
    )


def collected(text: str) -> int:
    return sum(1 for _ in collect(Document(text, "page.md")))


@pytest.mark.parametrize("page", PAGES)
def test_pytest_collects_every_example(page: str) -> None:
    assert collected(PAGES[page]) == regions.count_examples(PAGES[page])


@pytest.mark.parametrize("line", [">>> x", "> >>> x", "1. >>> x", "* >>> x"])
def test_a_prompt_outside_of_a_fence_is_found(line: str) -> None:
    assert len(list(regions.check_prompts(PAGE, f"```text\n```\n{line}"))) == 1
    assert not list(regions.check_prompts(PAGE, f"```python\n{line}\n```"))


def test_examples_in_tabs_and_notes_are_collected() -> None:
    tab = "````{tabs}\n```{group-tab} A\n~~~python\n1\n~~~\n```\n````\n"
    note = ":::{note}\n```console\n$ ls\n```\n:::\n"
    item = "- x\n\n  ```python\n  1\n  ```\n"
    item += "\n> ```python\n> 1\n> ```\n\n1. ```python\n   1\n   ```\n"
    assert collected(tab + note + item) == 5
    assert regions.count_examples(tab + note + item) == 5


def test_this_book_and_its_tests_agree_on_claims() -> None:
    wrong = list(claims.check(PAGES, claims.read_tests()))
    assert not wrong, "\n".join(["", *wrong])
    assert len(list(claims.find_claims(PAGES))) > 40
