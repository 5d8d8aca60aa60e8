"""The tables of errors: complete, and each row's test expects its error."""

import ast
import re
from pathlib import Path

import pytest
import torch

import regions
from tables import emulator, errors

TESTS = regions.ROOT / "backend" / "tests"
HEADER = regions.ROOT / "backend" / "device" / "openreg.h"
RAISE = regions.ROOT / "backend" / "csrc" / "runtime" / "device.cpp"


def source_of(place: str) -> str:
    """The test at `file::function`, with its decorators."""
    file, name = place.split("::")
    for node in ast.walk(ast.parse((TESTS / file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.unparse(node)
    raise AssertionError(f"{place} does not exist")


def test_every_error_of_the_header_has_a_row() -> None:
    text = HEADER.read_text()
    codes = re.findall(r"\b(orError\w+) = \d+,", text)
    assert [*emulator.device_error_names()] == ["orSuccess", *codes]
    assert list(errors.DEVICE_ERRORS) == codes
    for name in codes:
        assert f"| `{name}` |" in errors.device_errors()


@pytest.mark.parametrize("name", errors.DEVICE_ERRORS)
def test_every_error_has_a_test_that_expects_it(name: str) -> None:
    code = source_of(errors.DEVICE_ERRORS[name].test)
    # Its name, or what only its test says of it.
    expects = {"orErrorDeviceFailed": "assert_tells_all"}
    assert expects.get(name, name) in code


@pytest.mark.parametrize("name", errors.DEVICE_ERRORS)
def test_twins_are_known_to_pytorch(name: str) -> None:
    twin = errors.DEVICE_ERRORS[name].twin
    if not twin.startswith("none: "):
        known = Path(torch.__file__).parent / "utils/hipify"
        mappings = (known / "cuda_to_hip_mappings.py").read_text()
        assert f'"{twin}"' in mappings


def test_exceptions_are_those_that_raise_error_throws() -> None:
    accelerator = {
        name
        for name, row in errors.DEVICE_ERRORS.items()
        if row.exception == "torch.AcceleratorError"
    }
    text = RAISE.read_text()
    branches = re.findall(
        r"if \(error == (\w+)\) \{[^}]*?c10::AcceleratorError", text
    )
    assert set(branches) == accelerator
    for row in errors.DEVICE_ERRORS.values():
        kind = row.exception.removeprefix("torch.")
        assert (
            row.exception.startswith("none: ")
            or hasattr(torch, kind)
            or kind == "RuntimeError"
        )


def test_what_comes_later_is_what_a_test_waits_for() -> None:
    late = [row for row in errors.ERROR_TIMES if "later" in row]
    assert len(late) == 1
    assert "late = MODE == 'async' or" in source_of(late[0].test)
    assert late[0].error in errors.error_times()


@pytest.mark.parametrize("row", errors.ERROR_TIMES, ids=lambda row: row.error)
def test_every_time_has_a_test_that_expects_an_error(
    row: errors.ErrorTime,
) -> None:
    assert "pytest.raises" in source_of(row.test)
    marks = source_of(row.test).partition("def ")[0]
    assert ("never" in row) == ("mark.queued" in marks)
