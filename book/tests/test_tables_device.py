"""The device's tables: complete, and joined to what they speak of."""

import re
import subprocess
from pathlib import Path

import pytest
import torch

import rows
from tables import device, emulator
from torch_openreg import _C, openreg

CALLS = [name for call in emulator.device_calls() for name in call.names]


def test_every_exported_call_has_a_row() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", emulator.device_library()._name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert sorted(CALLS) == sorted(re.findall(r" T (or[A-Z]\w+)", listed))
    ids = [r for r in rows.every(rows.read()) if r.startswith("emulator.")]
    assert sorted(CALLS) == sorted(row.partition(".")[2] for row in ids)


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
    # A handle, a call of the driver, and one younger than the mappings; CUPTI
    # is a library that they leave out.
    others = {"cudaStreamLegacy", "cuStreamWaitValue64", "cudaStreamGetDevice"}
    others |= {"cuptiSubscribe", "cuptiUnsubscribe"}
    for twin in set(call.twins) - others:
        assert f'"{twin}"' in known.read_text(), twin


# The device functions


def test_device_functions_are_joined_to_their_bindings() -> None:
    by_name = {row.name: row for row in device.device_functions()}
    assert {row.key for row in rows.rows("device")} <= set(by_name)
    for row in by_name.values():
        assert not row.binding or hasattr(_C, row.binding)
        assert all(hasattr(openreg, name) for name in row.callers)
        assert row.meaning
    assert by_name["set_device"].binding == "_set_device"
    assert by_name["set_device"].callers == ["set_device"]
    assert by_name["maybe_exchange_device"].callers == ["device"]
    assert by_name["exchange_device"].callers == []
    assert by_name["check_device"].binding == ""
