"""The device's tables: complete, and each row's test calls what it names."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
import torch

import regions
from tables import device, emulator
from torch_openreg import _C

TESTS = regions.ROOT / "backend" / "tests"
CALLS = [name for call in emulator.device_calls() for name in call.names]


def function(place: str) -> ast.FunctionDef:
    """The test at `file::function`."""
    file, name = place.split("::")
    for node in ast.walk(ast.parse((TESTS / file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise AssertionError(f"{place} does not exist")


def spellings(name: str, file: str) -> str:
    """What a test may write to make the call: its name, or a helper's."""
    found = {name}
    for source in ("_device.py", file):
        for node in ast.walk(ast.parse((TESTS / source).read_text())):
            if (
                isinstance(node, ast.FunctionDef | ast.ClassDef)
                and not node.name.startswith(("load", "test_"))
                and re.search(rf"\b{name}\b", ast.unparse(node))
            ):
                found.add(node.name)
    return rf"\b({'|'.join(found)})\b"


def test_every_exported_call_has_a_row() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", emulator.device_library()._name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert sorted(CALLS) == sorted(re.findall(r" T (or[A-Z]\w+)", listed))


@pytest.mark.parametrize(
    "call", emulator.device_calls(), ids=lambda c: c.names[0]
)
def test_every_call_says_what_it_does_and_its_twin(
    call: emulator.DeviceCall,
) -> None:
    assert len(call.meaning.split()) >= 3
    # Without a twin, a sentence says why.
    assert call.twins or call.differs
    known = Path(torch.__file__).parent / "utils/hipify/cuda_to_hip_mappings.py"
    # A handle, a call of the driver, and one younger than the mappings.
    others = {"cudaStreamLegacy", "cuStreamWaitValue64", "cudaStreamGetDevice"}
    for twin in set(call.twins) - others:
        assert f'"{twin}"' in known.read_text(), twin
    row = " | ".join(f"`{name}`" for name in call.names[:1])
    assert row in emulator.device_twins()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_a_test_that_calls_it(name: str) -> None:
    place = emulator.DEVICE_TESTS[name]
    test = function(place)
    code = "\n".join(map(ast.unparse, [*test.decorator_list, *test.body]))
    assert re.search(spellings(name, place.split("::")[0]), code)


def test_tests_are_of_calls_that_exist() -> None:
    assert set(emulator.DEVICE_TESTS) == set(CALLS)


# The device functions


def test_every_device_function_has_a_purpose_and_a_test() -> None:
    names = [row.name for row in device.device_functions()]
    assert {row.name for row in device.DEVICE_PURPOSES} <= set(names)
    for row in device.DEVICE_PURPOSES:
        code = ast.unparse(function(row.test))
        public = {
            caller
            for other in device.device_functions()
            if other.name == row.name
            for caller in (other.binding, *other.callers)
        }
        if row.name == "device_count":
            public.add("is_available")  # whether the count is above 0
        assert any(re.search(rf"\b{name}\b", code) for name in public), row


def test_device_functions_are_joined_to_their_bindings() -> None:
    rows = {row.name: row for row in device.device_functions()}
    for row in rows.values():
        assert not row.binding or hasattr(_C, row.binding)
        assert all(hasattr(torch.openreg, name) for name in row.callers)
        assert row.meaning
    assert rows["set_device"].binding == "_set_device"
    assert rows["set_device"].callers == ["set_device"]
    assert rows["maybe_exchange_device"].callers == ["device"]
    assert rows["exchange_device"].callers == []
    assert rows["check_device"].binding == ""
