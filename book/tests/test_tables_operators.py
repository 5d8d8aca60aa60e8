"""The tables of the operators chapter: complete, and true of this PyTorch."""

import doctest
import json
import subprocess
import sys

import pytest
import torch

import regions
import tables

# All calls in one process of their own: some change the dispatcher.
CALLS = f"""
import json
import torch
C = torch._C
x = torch.ones(2, device="openreg")
add = C._dispatch_find_schema_or_throw("aten::add", "Tensor")
lab = torch.library.Library("lab", "DEF")
lab.define("thirds(Tensor x) -> Tensor")
thirds = C._dispatch_find_schema_or_throw("lab::thirds", "")
answers = [repr(eval(call)) for call in {[t.call for t in tables.TOOLS]}]
print("")
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, "-c", CALLS],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    # What the dispatcher itself printed comes before or after, as it likes.
    (line,) = (x for x in run.stdout.splitlines() if x.startswith("["))
    found = json.loads(line)
    names = [tool.name for tool in tables.TOOLS]
    return dict(zip(names, found, strict=True))


def test_every_tool_is_a_row() -> None:
    here = [name for name in dir(torch._C) if name.startswith("_dispatch_")]
    assert sorted(tool.name for tool in tables.TOOLS) == sorted(here)


@pytest.mark.parametrize("tool", tables.TOOLS, ids=lambda tool: tool.name)
def test_every_tool_answers(answers: dict[str, str], tool: tables.Tool) -> None:
    assert f"C.{tool.name}" in tool.call
    got = answers[tool.name]
    assert doctest.OutputChecker().check_output(
        tool.answer + "\n", got + "\n", doctest.ELLIPSIS
    ), got


@pytest.mark.parametrize("name", tables.REMOVED_TOOLS)
def test_removed_tools_are_gone(name: str) -> None:
    assert not hasattr(torch._C, name)


def test_every_row_of_the_minimal_set_links_to_its_registration() -> None:
    found, _ = regions.find_regions(regions.read_sources())
    known = {region.name for region in found} | {"view-register"}
    rows = {row.operator for row in tables.minimal_rows()}
    assert set(tables.MINIMAL_LISTINGS) <= rows
    assert set(tables.MINIMAL_LISTINGS.values()) <= known


def test_rows_without_a_listing_of_their_own_are_views() -> None:
    views = (regions.ROOT / "backend/csrc/aten/view.cpp").read_text()
    for row in tables.minimal_rows():
        if row.operator not in tables.MINIMAL_LISTINGS:
            assert f'add("{row.operator}",' in views
