"""The rows of the tables agree with what they speak of, and none is missing."""

import io
import re
from pathlib import Path

import pytest
import torch
from _pages import text_of

import claims
import regions
import rows as row_files
from rows import Row, rows
from tables import (
    common,
    emulator,
    errors,
    operator_table,
    operators_inside,
    port,
    virtuals,
)

BACKEND = regions.ROOT / "backend"
REGIONS, _ = regions.find_regions(regions.read_sources())
TORCH = Path(torch.__file__).parent


TOML = text_of("rows.toml")


def test_rows_are_named_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row_files.every({"book/rows/x.toml": TOML}) == {
        "x.one.first": True,
        "x.one.second.third": False,
        "x.alone": True,
    }
    (tmp_path / "x.toml").write_text(TOML)
    monkeypatch.setattr(row_files, "FOLDER", tmp_path)
    first, second = rows("x.one")
    assert (first.key, first.id, first.a) == ("first", "x.one.first", "1")
    assert first.mark == " {proven}`x.one.first`"
    assert (second.a, second.b, second.mark) == ("", {"c": "2"}, "")
    assert [(row.a, row.mark) for row in rows("x.list")] == [("1", "")]
    (tmp_path / "x.toml").write_text(f"{TOML}[columns]\nA = '{{key}} {{a}}'\n")
    with pytest.raises(LookupError, match=r"lacks a: x\.one\.second\.third"):
        common.of_rows("x.one")
    with pytest.raises(LookupError, match=r"no file book/rows/y\.toml"):
        rows("y")
    (tmp_path / "x.toml").write_text("a = no\n")
    with pytest.raises(ValueError, match=r"book/rows/x\.toml: Invalid value"):
        rows("x")


def test_tests_and_tables_do_not_import_each_other() -> None:
    folders = BACKEND / "tests", regions.ROOT / "book" / "_ext"
    for here, there in folders, folders[::-1]:
        names = {path.stem for path in there.iterdir()} - {"__pycache__"}
        imports = re.compile(rf"^ *(?:from|import) ({'|'.join(names)})\b", re.M)
        for path in here.rglob("*.py"):
            assert not imports.findall(path.read_text()), path


def test_every_variable_that_is_read_is_a_row() -> None:
    sources = "".join(regions.read_sources().values())
    read = set(re.findall(r'\("(OPENREG_\w+)"', sources))
    names = {row.key for row in rows("environment")}
    assert {name for name in names if name.startswith("OPENREG_")} == read


# torch.accelerator


def test_every_public_name_of_the_accelerator_has_a_row() -> None:
    names = [row.key for row in rows("accelerator")]
    assert sorted(names) == sorted(torch.accelerator.__all__)
    assert common.of_rows("accelerator").count("\n") == len(names) + 1


METHODS = {
    "the guard: ": set(virtuals.methods("guard")),
    "the device's allocator: ": {row.key for row in rows("memory.allocator")},
}


@pytest.mark.parametrize("row", rows("accelerator"), ids=lambda row: row.key)
def test_a_method_that_is_named_is_one_of_the_interface(row: Row) -> None:
    for part, methods in METHODS.items():
        if row.answered_by.startswith(part):
            assert set(row.answered_by.split("`")[1::2]) <= methods


# Errors


def test_every_error_of_the_header_has_a_row() -> None:
    text = (BACKEND / "device" / "openreg.h").read_text()
    codes = re.findall(r"\b(orError\w+) = \d+,", text)
    assert [*emulator.device_error_names()] == ["orSuccess", *codes]
    assert [row.key for row in rows("errors.codes")] == codes
    for name in codes:
        assert f"| `{name}` {{proven}}" in errors.device_errors()


def test_twins_and_exceptions_of_errors_are_those_of_pytorch() -> None:
    mappings = (TORCH / "utils/hipify/cuda_to_hip_mappings.py").read_text()
    text = (BACKEND / "csrc" / "runtime" / "device.cpp").read_text()
    raised = re.findall(
        r"if \(error == (\w+)\) \{[^}]*?c10::AcceleratorError", text
    )
    for row in rows("errors.codes"):
        kind = row.exception.removeprefix("torch.")
        assert row.twin.startswith("none: ") or f'"{row.twin}"' in mappings
        assert (kind == "AcceleratorError") == (row.key in raised)
        assert (
            kind == "RuntimeError"
            or kind.startswith("none: ")
            or hasattr(torch, kind)
        )


# Memory and storage


def test_every_field_of_the_statistics_has_one_row() -> None:
    header = TORCH / "include/c10/core/CachingDeviceAllocator.h"
    body = header.read_text().split("struct DeviceStats {")[1].split("\n};")[0]
    declared = re.findall(r"(\w+)(?: = 0)?;", re.sub(r"//.*", "", body))
    told = rows("memory.stats")
    assert sorted(row.field for row in told) == sorted(declared)
    stats = torch.accelerator.memory_stats()
    names = {row.name.strip("`") for row in told} - {"none"}
    assert names <= set(stats)
    assert {name.split(".")[0] for name in stats} == {
        name.split(".")[0] for name in names
    }


def test_no_test_stands_for_two_rows_of_storage() -> None:
    tables = ("changes", "sharing", "dlpack")
    proofs = claims.proofs()
    by = [proofs[r.id][0] for t in tables for r in rows(f"storage.{t}")]
    assert len(set(by)) == len(by)


@pytest.mark.parametrize(
    "row", rows("storage.map_locations"), ids=lambda r: r.where
)
def test_a_tensor_arrives_where_the_row_says(row: Row) -> None:
    file = io.BytesIO()
    torch.save(torch.ones(1, device="openreg"), file)
    file.seek(0)
    x = torch.load(file, map_location=eval(row.where))
    assert str(x.device) == row.arrives


# Operators


def test_every_row_of_the_minimal_set_links_to_its_registration() -> None:
    views = (BACKEND / "csrc/aten/core/view.cpp").read_text()
    names = {region.name for region in REGIONS}
    for row in rows("operators.minimal"):
        assert row.listing in names
        if row.listing == "view-register":
            assert f'library.impl("{row.operator}",' in views


def test_each_file_of_the_operators_is_at_one_way() -> None:
    tiers = rows("operators_inside.tiers")
    named = [file for tier in tiers for file in tier.files]
    aten = operators_inside.ATEN
    files = [path for path in aten.rglob("*") if path.is_file()]
    here = [path.relative_to(aten).as_posix() for path in files]
    assert sorted(named) == sorted(here)


def test_each_operator_of_the_cpu_goes_one_way() -> None:
    ways = operators_inside.tier_operators()
    dense = set(
        torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    )
    aten = {name for name in dense if name.startswith("aten::")}
    refused = {name for name in aten if name.startswith("aten::fbgemm_")}
    assert {operator_table.tier(name) for name in refused} == {"none"}
    aten -= refused
    assert ways["a"] | ways["b"] | ways["c"] == aten
    assert sum(map(len, ways.values())) == len(aten)
    assert not ways["d"]
    assert {"aten::abs.out", "aten::mul.out"} <= ways["a"]
    assert {"aten::convolution_overrideable", "aten::mm"} <= ways["b"]
    assert {"aten::cumsum", "aten::_to_sparse"} <= ways["c"]


# The port


@pytest.mark.parametrize("row", rows("port.names"), ids=lambda row: row.here)
def test_a_name_is_used_where_the_table_says(row: Row) -> None:
    """And has one of three spellings, so the recipe's sed changes it."""
    assert port.users(row.pattern)
    text = port.tree()[row.first]
    assert re.search(row.pattern, text) or row.first.endswith(row.here)
    assert re.search("openreg|OPENREG|OpenReg", row.here)


def test_what_must_stay_is_not_touched_by_the_recipe() -> None:
    texts = port.tree().values()
    spelt = {word for t in texts for word in re.findall("openreg", t, re.I)}
    assert spelt == {"openreg", "OPENREG", "OpenReg"}
    for row in rows("port.fixed"):
        words = {word for t in texts for word in re.findall(row.pattern, t)}
        assert words
        mixed = {word for word in words if "openreg" in word.lower()}
        assert mixed == set(), f"{row.pattern} matches {mixed}"
