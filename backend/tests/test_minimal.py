"""The minimal set of operators: enough, and no row too many."""

from __future__ import annotations

import json
import multiprocessing
import re
from pathlib import Path

import pytest

import _rows
import everyday
import rooms
from _fresh import omit_library, prints, run, without_kernel

pytestmark = pytest.mark.one_mode

BACKEND = rooms.ROOT / "backend"
PROGRAM = Path(everyday.__file__).read_text()
ROWS = _rows.read("operators")["minimal"]


def failures(omit: str, operators: str = "minimal") -> dict[str, str]:
    """What fails in a process with a set of operators, less one."""
    omission = without_kernel(omit) if omit else {}
    process = prints(PROGRAM, OPENREG_OPERATORS=operators, **omission)
    *_, last = process.splitlines()
    return json.loads(last)


@pytest.fixture(scope="module")
def failures_by_row() -> dict[str, dict[str, str]]:
    operators = ["", *(row["operator"] for row in ROWS)]
    return {operator: failures(operator) for operator in operators}


def test_everyday_operations_work_on_the_full_set() -> None:
    assert everyday.failures() == {}


@pytest.mark.proves("environment.OPENREG_OPERATORS")
def test_everyday_operations_work_on_the_minimal_set(failures_by_row) -> None:
    assert failures_by_row[""] == {}


@pytest.mark.proves(
    "operators-minimal",
    "checklist.empty_strided",
    "checklist._copy_from",
    "checklist._copy_from_and_resize",
    "checklist.resize_",
    "checklist.set_.source_Storage",
    "checklist.set_.source_Storage_storage_offset",
    "checklist.view",
    "checklist.as_strided",
    "checklist._reshape_alias",
    "checklist.unfold",
    "checklist.view_as_real",
    "checklist.view_as_complex",
    "checklist.fallback",
)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["operator"])
def test_a_missing_row_breaks_its_operation(failures_by_row, row) -> None:
    failed = failures_by_row[row["operator"]]
    error = failed[row["breaks"].replace(" ", "_")]
    assert error.startswith(f"NotImplementedError: {row['says']}")


def test_item_needs_no_row_because_the_fallback_serves_it() -> None:
    # It is registered for speed only, in the full set.
    assert failures("_local_scalar_dense", operators="full") == {}


@pytest.mark.proves("messages.expected-full-or-minimal")
def test_an_operator_set_that_means_nothing_is_refused() -> None:
    process = run("import torch", OPENREG_OPERATORS="some")
    assert process.returncode == 1
    assert (
        "OPENREG_OPERATORS is 'some'; expected 'full' or 'minimal'"
        in process.stdout
    )


@pytest.mark.proves("omit-named")
def test_leaving_out_what_nobody_registers_is_noticed() -> None:
    process = run("import torch", **without_kernel("emty"))
    assert process.returncode == 1
    assert "OMIT is 'emty', which names no kernel" in process.stdout


def test_pytorch_keeps_its_kernels_of_the_same_name() -> None:
    code = "import torch; print(torch.ones(4).view(2, 2).shape)"
    assert prints(code, **without_kernel("view")) == "torch.Size([2, 2])\n"


def test_without_a_name_every_kernel_is_registered() -> None:
    code = "import torch; print(torch.ones(4, device='openreg').view(2, 2)[1])"
    settings = {"LD_PRELOAD": omit_library(), "OPENREG_OPERATORS": "minimal"}
    assert prints(code, **settings) == "tensor([1., 1.], device='openreg:0')\n"


def test_what_is_compiled_for_a_process_outlives_its_children() -> None:
    library = omit_library()
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    child.join()
    assert Path(library).exists()


def listed() -> set[str]:
    """The files of the minimal path, as `csrc/aten/core/copy.cpp`."""
    found = rooms.minimal_path()
    return {path.relative_to(BACKEND).as_posix() for path in found}


def test_the_minimal_path_has_no_alias_no_pool_and_few_lines() -> None:
    others = r"/(forms|operators|kinds)/|/pool\b|^csrc/runtime/allocator.cpp"
    assert {"csrc/runtime/stream.h", "device/openreg.h"} <= listed()
    assert [name for name in listed() if re.search(others, name)] == []
    lines = sum(map(rooms.count_code, rooms.minimal_path()))
    assert 2000 < lines <= rooms.MINIMAL


def test_the_minimal_path_has_what_its_headers_promise() -> None:
    """A header's source: its own, or the one that stands for it."""
    names = {Path(name).name for name in listed()}
    sources = {path.name for path in (BACKEND / "csrc").rglob("*.cpp")}
    headers = {name for name in names if name.endswith(".h")}
    promised = {f"{Path(name).stem}.cpp" for name in headers} & sources
    assert {"allocator.cpp", "copy_elements.cpp"} <= promised <= names
    own = {p.name for p in (BACKEND / "csrc" / "minimal").iterdir()}
    assert {f"csrc/minimal/{name}" for name in own} <= listed()


def test_a_page_says_what_each_file_of_the_minimal_path_is_for() -> None:
    page = (rooms.ROOT / "book" / "howto" / "port.md").read_text()
    rows = re.findall(r"^\| (`csrc/.*?) \|", page, re.MULTILINE)
    told = set()
    for row in rows:
        folder, *files = re.findall(r"`(.+?)`", row)
        told |= {folder + file for file in files} or {folder}
    assert told == {name for name in listed() if name.endswith(".cpp")}
