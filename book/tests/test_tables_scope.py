"""The tables of the first pages: what they claim is what is there."""

from pathlib import Path

import pytest

import regions
import releases
import tables.scope
from rows import Row, rows
from tables import build

BOOK = regions.ROOT / "book"
PARTS = rows("scope.subsystems")
PAGES = [part.page for part in PARTS if part.page]


def test_a_state_is_what_the_probes_found() -> None:
    good, bad = "x + 1", "raise RuntimeError"
    assert tables.scope.state({"a": good}) == ("works", [])
    assert tables.scope.state({"a": good, "b": bad}) == ("partly", ["b"])
    assert tables.scope.state({"a": bad}) == ("not yet", ["a"])


@pytest.mark.parametrize("mistake", ["y", "x +", "import nothing"])
def test_a_mistake_in_a_probe_is_not_a_state(mistake: str) -> None:
    with pytest.raises((NameError, SyntaxError, ImportError)):
        tables.scope.runs(mistake)


@pytest.mark.parametrize(
    "row", PARTS, ids=lambda row: row.name.replace(" ", "-")
)
def test_what_has_a_chapter_works(row: Row) -> None:
    word, missing = tables.scope.state(row.probes)
    if row.page:
        assert (BOOK / "chapters" / f"{row.page}.md").is_file()
        assert word != "not yet", missing


def test_parts_follow_the_table_of_contents() -> None:
    order = [regions.toctree().index(f"chapters/{page}") for page in PAGES]
    assert order == sorted(order)
    parts = [row.part for row in PARTS]
    assert len(set(parts)) == 4
    assert parts == sorted(parts, key=list(dict.fromkeys(parts)).index)


def test_every_page_is_in_the_table_of_contents() -> None:
    pages = set(map(regions.docname, regions.read_pages()))
    inner = {p for p in pages if p.startswith("about/decisions/0")}
    made_by_sphinx = {"genindex"}
    menu = regions.toctree()
    assert set(menu) - made_by_sphinx == pages - inner - {"index"}
    assert len(menu) == len(set(menu))


def test_the_readme_activates_the_environment_of_the_noxfile() -> None:
    env = releases.places(releases.current()[0]).env
    assert env.relative_to(regions.ROOT) == Path(".nox/shared")
    readme = (regions.ROOT / "README.md").read_text()
    assert "\nsource .nox/shared/bin/activate\n" in readme


def test_the_map_names_files_that_exist_and_all_of_the_runtime() -> None:
    paths = {p for row in rows("scope.reference") for p in row.ours}
    backend = regions.ROOT / "backend"
    assert not {path for path in paths if not (backend / path).exists()}
    runtime = (backend / "csrc" / "runtime").glob("*.cpp")
    # What belongs to the emulator, and what the reference backend lacks.
    others = {file.name for file in runtime} - {Path(p).name for p in paths}
    assert others == {"host_threads.cpp", "operator_names.cpp", "storage.cpp"}


def test_the_four_objects_are_the_installed_ones() -> None:
    parts = build.shared_objects()
    assert len(parts) == 4
    for path, duty in parts.items():
        assert path.is_file()
        assert f"| `{path.name.split('.')[0]}.so` | {duty}" in build.objects()
