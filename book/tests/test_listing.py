"""The directives, each with what it shows and what it refuses."""

import re
import runpy

import pytest
from _pages import samples, text_of
from sphinx_pytest.plugin import CreateDoctree

import regions
from tables import common
from torch_openreg._build import TORCH_VERSION

SOURCE = text_of("region.cpp")
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
SAMPLES = samples("listing")
REFUSED = SAMPLES["refused"]


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


@pytest.mark.filterwarnings("ignore:.*MystReferenceResolver.app")
def test_a_dead_reference_is_a_warning(sphinx_doctree: CreateDoctree) -> None:
    conf = runpy.run_path(str(regions.ROOT / "book" / "conf.py"))
    nitpicks = {n: v for n, v in conf.items() if n.startswith("nitpick")}
    sphinx_doctree.set_conf({"extensions": ["myst_parser"], **nitpicks})
    result = sphinx_doctree(
        "\n\n".join(["# T", *SAMPLES["references"]]), "index.md"
    )
    result.get_resolved_doctree()
    warned = result.warnings.strip().splitlines()
    expected = list(filter(None, SAMPLES["references"].values()))
    assert len(warned) == len(expected), warned
    for message in expected:
        assert any(message in line for line in warned), message
