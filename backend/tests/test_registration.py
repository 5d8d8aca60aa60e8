"""Kernels registered from Python: their key, their order, their end."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator

import pytest
import torch

import _fresh

NAMESPACE = "openreg_registration_test"


@pytest.fixture(scope="module", autouse=True)
def operator() -> Iterator[None]:
    library = torch.library.Library(NAMESPACE, "DEF")
    library.define("number(Tensor x) -> int")
    yield
    library._destroy()


def register(number: int, key: str = "PrivateUse1") -> torch.library.Library:
    library = torch.library.Library(NAMESPACE, "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden
        library.impl("number", lambda x: number, key)
    return library


def number() -> int:
    x = torch.ones(1, device="openreg")
    return getattr(torch.ops, NAMESPACE).number(x)


@pytest.mark.parametrize("name", ["openreg", "privateuseone", "OpenReg"])
def test_the_devices_name_is_no_key(name: str) -> None:
    with pytest.raises(
        RuntimeError, match=f"could not parse dispatch key: {name}"
    ):
        register(1, name)


def test_the_last_registration_wins_until_it_is_undone() -> None:
    first = register(1)
    second = register(2)
    assert number() == 2
    second._destroy()
    assert number() == 1
    first._destroy()
    with pytest.raises(NotImplementedError, match="Could not run"):
        number()


def test_an_earlier_registration_can_be_undone_first() -> None:
    first, second = register(1), register(2)
    first._destroy()
    assert number() == 2
    second._destroy()


def test_a_registration_ends_with_its_library() -> None:
    library = register(1)
    assert number() == 1
    del library
    gc.collect()
    with pytest.raises(NotImplementedError, match="Could not run"):
        number()


def test_a_library_that_is_undone_registers_nothing_more() -> None:
    library = register(1)
    library._destroy()
    with pytest.raises(AssertionError, match="has been destroyed"):
        library.impl("number", lambda x: 2, "PrivateUse1")


def test_the_signature_is_checked_when_the_kernel_is_called() -> None:
    library = torch.library.Library(NAMESPACE, "IMPL")
    library.impl("number", lambda: 1, "PrivateUse1")
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        number()
    library._destroy()


@pytest.mark.proves("operators-override")
@pytest.mark.one_mode
def test_overriding_warns_once_a_process_or_if_told_each_time() -> None:
    printed = _fresh.prints(
        """
        import torch

        library = torch.library.Library("aten", "IMPL")
        for name in ("relu", "mish", "erf"):
            library.impl(name, lambda x: x * 0, "PrivateUse1")
            torch.set_warn_always(name == "mish")
        x = torch.ones(1, device="openreg")
        mish = torch.nn.functional.mish
        print(x.relu().item(), mish(x).item())
        library._destroy()
        print(x.relu().item(), mish(x).item() > 0.8)
        """
    )
    # The CUDA build has used the one warning up when its import ends.
    once = ["relu"] if torch.version.cuda is None else []
    warned = re.findall(r"operator: aten::(\w+)\(Tensor self\)", printed)
    assert warned == [*once, "erf"]
    assert printed.count("Overriding a prev") == len(warned)
    assert printed.endswith("0.0 0.0\n1.0 True\n")
