"""The directives, each with what it shows and what it refuses."""

import re
import runpy

import pytest
from sphinx_pytest.plugin import CreateDoctree

import regions
from tables import common
from torch_openreg._build import TORCH_VERSION

SOURCE = """\
int a;
  // [dev-one] The `first` region.
  int b;
    int c;
  // [/dev-one]
"""
MEMORY = "backend/device/memory.cpp"
DRAWING = '<?xml version="1.0"?>\n<svg viewBox="0 0 1 1"></svg>'


@pytest.fixture
def render(
    sphinx_doctree: CreateDoctree, monkeypatch: pytest.MonkeyPatch
) -> CreateDoctree:
    file = sphinx_doctree.srcdir / MEMORY
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    monkeypatch.setattr(regions, "ROOT", sphinx_doctree.srcdir)
    monkeypatch.setattr(regions, "read_sources", lambda: {MEMORY: SOURCE})
    sphinx_doctree.set_conf({"extensions": ["myst_parser", "listing"]})
    static = sphinx_doctree.srcdir / "_static"
    static.mkdir()
    (static / "box.svg").write_text(DRAWING)
    return sphinx_doctree


def fence(directive: str, *options: str) -> str:
    return "\n".join(("# T", "", f"```{{{directive}", *options, "```", ""))


def listing(start: str, end: str, *options: str, file: str = MEMORY) -> str:
    markers = f':start-after: "[{start}]"', f':end-before: "[/{end}]"'
    return fence(f"literalinclude}} {file}", *markers, *options)


# MyST-Parser's own use of Sphinx, reached when references are resolved.
@pytest.mark.filterwarnings("ignore:.*MystReferenceResolver.app")
def test_listing_shows_code_place_and_sentence(render: CreateDoctree) -> None:
    page = listing("dev-one", "dev-one", ':mark: "int c"')
    page += "\n[it](#dev-one)\n"
    result = render(page, "index.md")
    text = result.pformat()
    assert result.warnings == ""
    assert "int b;\n" in text
    assert "  int c;\n" in text
    assert "int a" not in text
    assert "'linenostart': 3" in text
    assert "'hl_lines': [2]" in text
    assert "source/backend/device/memory.cpp.html#L-3" in text
    assert 'ids="dev-one"' in text
    assert re.search(r"The\s+<literal>\s+first\s+region\.", text)
    assert '<reference classes="headerlink" refid="dev-one"' in text
    assert 'refid="dev-one"' in result.get_resolved_pformat()


PYTORCH = "pytorch} torch/random.py"

REFUSED = {
    "from [dev-two] to [/dev-two]": listing("dev-two", "dev-two"),
    "from [dev-one] to [/dev-two]": listing("dev-one", "dev-two"),
    "stands in backend/device/memory.cpp, not in device/x.cpp": listing(
        "dev-one", "dev-one", file="device/x.cpp"
    ),
    "from [] to None": fence(f"literalinclude}} {MEMORY}"),
    "'nope' stands in 0 lines": listing("dev-one", "dev-one", ":mark: nope"),
    "'int' stands in 2 lines": listing("dev-one", "dev-one", ":mark: int"),
    "Unknown option": listing("dev-one", "dev-one", ":lines: 1-2"),
    "No such file": fence("pytorch} torch/no.py", ":start-at: x"),
    "'start-at'": fence(PYTORCH),
    "'seed' stands in": fence(PYTORCH, ":start-at: seed"),
    "the 40 lines from there": fence(
        PYTORCH, ':start-at: "def manual_seed("', ":end-at: nope"
    ),
    "tables/guard.py has no nope()": fence("generated} guard.nope"),
    "tables/nope.py has no x()": fence("generated} nope.x"),
    "tables/hooks.py has no ()": fence("generated} hooks"),
    "needs an :alt:": fence("drawing} box.svg"),
    "to be in _static": fence("drawing} no.svg", ":alt: A box"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_with_a_reason(render: CreateDoctree, message: str) -> None:
    assert message in render(REFUSED[message], "index.md").warnings


def test_pytorch_lines_are_found_by_text(render: CreateDoctree) -> None:
    first, last = '"def manual_seed("', '"return _manual_seed_impl("'
    options = f":start-at: {first}", f":end-at: {last}"
    result = render(fence(PYTORCH, *options), "index.md")
    assert result.warnings == ""
    assert "def manual_seed(seed)" in result.pformat()
    assert f"PyTorch {TORCH_VERSION}" in result.pformat()


def test_generated_is_markdown_of_a_function(
    render: CreateDoctree, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = common.table(("A", "B"), [("`x|y`", "*z*")])
    monkeypatch.setattr(common, "sample", lambda: rows, raising=False)
    result = render(fence("generated} common.sample"), "index.md")
    assert result.warnings == ""
    assert "<table" in result.pformat()
    assert "x|y" in result.pformat()
    assert "<emphasis>" in result.pformat()


def test_drawing_has_a_text_alternative(render: CreateDoctree) -> None:
    page = fence("drawing} box.svg", ':alt: A "box"')
    result = render(page, "index.md")
    assert result.warnings == ""
    assert 'role="img"' in result.pformat()
    assert "?xml" not in result.pformat()


REFERENCES = {
    "[x](#no-such-anchor)": "target not found: 'no-such-anchor'",
    "[x](nope.md)": "'nope.md'",
    "{py:func}`torch.openreg.nope`": "target not found: torch.openreg.nope",
    "{py:func}`torch_openreg.nope`": "target not found: torch_openreg.nope",
    # What the nitpick is told to pass over.
    "{py:func}`torch.nope`": None,
    "{py:class}`x._Y`": None,
    "{cpp:type}`z`": None,
}


@pytest.mark.filterwarnings("ignore:.*MystReferenceResolver.app")
def test_a_dead_reference_is_a_warning(sphinx_doctree: CreateDoctree) -> None:
    conf = runpy.run_path(str(regions.ROOT / "book" / "conf.py"))
    nitpicks = {n: v for n, v in conf.items() if n.startswith("nitpick")}
    sphinx_doctree.set_conf({"extensions": ["myst_parser"], **nitpicks})
    result = sphinx_doctree("\n\n".join(["# T", *REFERENCES]), "index.md")
    result.get_resolved_doctree()
    warned = result.warnings.strip().splitlines()
    expected = list(filter(None, REFERENCES.values()))
    assert len(warned) == len(expected), warned
    for message in expected:
        assert any(message in line for line in warned), message
