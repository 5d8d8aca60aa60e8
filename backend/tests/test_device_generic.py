"""PyTorch's device-generic tests can be instantiated for the device.

Each test here makes a small class of generic tests, runs it as unittest would,
and looks at what became of it.
"""
# ruff: noqa: PT009 (these tests are unittest's)

from __future__ import annotations

import unittest
import warnings
from collections.abc import Iterator

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # hypothesis is optional
    from torch.testing._internal import common_device_type as generic
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.opinfo.core import DecorateInfo
# That import forbids to set torch.backends.* for the rest of the process.
torch.backends.__allow_nonbracketed_mutation_flag = True

Base = generic.PrivateUse1TestBase
Base.setUpClass()  # as the first class of a run does


def instantiate(tests: type, **choice: object) -> dict[str, type]:
    """The classes that come of a generic class, by name."""
    scope: dict[str, type] = {tests.__name__: tests}
    generic.instantiate_device_type_tests(tests, scope, **choice)
    return scope


def outcomes(tests: type, **choice: object) -> dict[str, str]:
    """Each test's end on the device: ok, skipped or failed, and why."""
    choice.setdefault("only_for", "openreg")
    (made,) = instantiate(tests, **choice).values()
    result = unittest.TestResult()
    loader = unittest.defaultTestLoader
    loader.loadTestsFromTestCase(made).run(result)
    ends = {name: "ok" for name in loader.getTestCaseNames(made)}
    for test, reason in result.skipped:
        ends[test._testMethodName] = f"skipped: {reason}"
    for test, text in result.failures + result.errors:
        ends[test._testMethodName] = f"failed: {text}"
    return ends


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """What a backend may set on its base is taken back."""
    yield
    Base.set_test_configs()
    Base.bypass_device_restrictions = False


def plain() -> type:
    class TestPlain(TestCase):
        @generic.dtypes(torch.float32, torch.int64)
        def test_add(self, device, dtype):
            x = torch.ones(2, device=device, dtype=dtype)
            self.assertEqual(x + x, [2, 2], exact_dtype=False)
            self.assertEqual(x.device, torch.device(device))

    return TestPlain


@pytest.mark.proves("testing-generic")
@pytest.mark.one_mode
def test_a_generic_class_becomes_one_for_each_device() -> None:
    made = instantiate(plain())
    assert set(made) == {"TestPlainCPU", "TestPlainOPENREG"}
    assert outcomes(plain()) == {
        "test_add_openreg_float32": "ok",
        "test_add_openreg_int64": "ok",
    }


def test_devices_are_chosen_by_either_name() -> None:
    ours = {"TestPlainOPENREG"}
    assert set(instantiate(plain(), only_for="openreg")) == ours
    assert set(instantiate(plain(), only_for=["privateuse1"])) == ours
    assert set(instantiate(plain(), except_for="cpu")) == ours
    assert set(instantiate(plain(), except_for=["openreg"])) == {"TestPlainCPU"}


def test_the_environment_chooses_devices(monkeypatch) -> None:
    monkeypatch.setenv("PYTORCH_TESTING_DEVICE_ONLY_FOR", "privateuse1")
    assert set(instantiate(plain())) == {"TestPlainOPENREG"}
    monkeypatch.delenv("PYTORCH_TESTING_DEVICE_ONLY_FOR")
    monkeypatch.setenv("PYTORCH_TESTING_DEVICE_EXCEPT_FOR", "openreg")
    assert set(instantiate(plain())) == {"TestPlainCPU"}


def test_decorators_know_the_device() -> None:
    class TestDecorated(TestCase):
        @generic.onlyPRIVATEUSE1
        def test_only(self, device):
            pass

        @generic.onlyAccelerator
        def test_accelerator(self, device):
            pass

        @generic.onlyNativeDeviceTypes
        def test_native(self, device):
            pass

        @generic.onlyCUDA
        def test_cuda(self, device):
            pass

        @generic.skipPRIVATEUSE1
        def test_skip(self, device):
            pass

        @generic.skipPRIVATEUSE1If(True, "not yet")
        def test_skip_if(self, device):
            pass

        @generic.expectedFailure("openreg")
        def test_known(self, device):
            self.assertEqual(torch.ones(1, device=device), [2.0])

        @generic.expectedFailure("openreg")
        def test_mended(self, device):
            pass

        @generic.deviceCountAtLeast(2)
        def test_two(self, devices):
            self.assertEqual(devices, ["openreg:0", "openreg:1"])

        @generic.deviceCountAtLeast(99)
        def test_many(self, devices):
            pass

    ends = outcomes(TestDecorated)
    assert "expected test to fail, but it passed" in ends.pop(
        "test_mended_openreg"
    )
    assert ends == {
        "test_only_openreg": "ok",
        "test_accelerator_openreg": "ok",
        "test_native_openreg": "ok",
        "test_cuda_openreg": "skipped: Only runs on cuda",
        "test_skip_openreg": "skipped: "
        "test doesn't work on privateuse1 backend",
        "test_skip_if_openreg": "skipped: not yet",
        "test_known_openreg": "ok",
        "test_two_openreg": "ok",
        "test_many_openreg": "skipped: fewer than 99 devices detected",
    }


def test_dtypes_and_tolerances_are_the_devices_own() -> None:
    class TestDtypes(TestCase):
        @generic.dtypes(torch.float32, torch.float64)
        @generic.dtypesIfPRIVATEUSE1(torch.float16, torch.float32)
        @generic.toleranceOverride({torch.float16: generic.tol(0.1, 0)})
        def test_near(self, device, dtype):
            x = torch.ones(1, device=device, dtype=dtype)
            self.assertEqual(x + 0.05, x)

    ends = outcomes(TestDtypes)
    assert set(ends) == {
        "test_near_openreg_float16",
        "test_near_openreg_float32",
    }
    assert ends["test_near_openreg_float16"] == "ok"
    assert "not close" in ends["test_near_openreg_float32"]


def test_a_test_for_another_device_runs_where_one_asks_for_it() -> None:
    class TestCuda(TestCase):
        @generic.onlyCUDA
        def test_cuda(self, device):
            self.assertEqual(device, "openreg:0")

    Base.bypass_device_restrictions = True
    assert outcomes(TestCuda) == {"test_cuda_openreg": "ok"}


def by_operator() -> type:
    class TestOperators(TestCase):
        @generic.ops(op_db, allowed_dtypes=(torch.float32,))
        def test_values(self, device, dtype, op):
            for sample in op.sample_inputs(device, dtype):
                op(sample.input, *sample.args, **sample.kwargs)

        def test_other(self, device):
            pass

    return TestOperators


@pytest.mark.one_mode
def test_operators_are_chosen_overridden_and_excluded() -> None:
    skip = DecorateInfo(unittest.skip("no solver yet"), test_name="test_values")
    Base.set_test_configs(
        op_allowlist={"sin", "linalg.svd"},
        op_overrides={"linalg.svd": [skip]},
        test_exclusions={"TestOperators": ["test_other"]},
    )
    assert outcomes(by_operator()) == {
        "test_values_sin_openreg_float32": "ok",
        "test_values_linalg_svd_openreg_float32": "skipped: no solver yet",
    }
    Base.set_test_configs(test_exclusions={"TestOperators": "*"})
    assert instantiate(by_operator(), only_for="openreg") == {}


class Recorder:
    """A device module that remembers what was asked of it."""

    def __init__(self, module: object) -> None:
        self.module = module
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.names.add(name)
        return getattr(self.module, name)


def test_the_base_asks_the_device_module_for_two_functions(monkeypatch) -> None:
    recorder = Recorder(torch.openreg)
    monkeypatch.setattr(torch, "openreg", recorder)
    Base.setUpClass()
    assert Base.get_primary_device() == "openreg:0"
    assert Base.get_all_devices() == ["openreg:0", "openreg:1"]
    assert recorder.names == {"current_device", "device_count"}
    monkeypatch.undo()
    Base.setUpClass()


@pytest.mark.proves("checklist.testing")
def test_without_the_device_module_the_base_says_what_is_missing(
    monkeypatch,
) -> None:
    monkeypatch.delattr(torch, "openreg")
    with pytest.raises(
        AssertionError, match="torch has no module of `openreg`"
    ):
        Base.setUpClass()
    monkeypatch.undo()
    Base.setUpClass()
