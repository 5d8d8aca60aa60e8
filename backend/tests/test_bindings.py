"""The bindings: what the module has, and how it behaves towards Python."""

from __future__ import annotations

import ast
import inspect
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import torch_openreg
from _device import PATIENCE
from torch_openreg import _C

PACKAGE = Path(torch_openreg.__file__).parent


def stub() -> dict[str, ast.stmt]:
    tree = ast.parse((PACKAGE / "_C.pyi").read_text())
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def public(names) -> set[str]:
    ours = {name for name in names if not name.startswith("__")}
    return ours - {"_pybind11_conduit_v1_"}  # pybind11 adds it to any class


def test_the_stub_names_what_the_module_has():
    assert public(vars(_C)) == public(stub())


@pytest.mark.parametrize("name", sorted(stub()))
def test_the_stub_gives_the_modules_arguments_and_attributes(name):
    node, real = stub()[name], getattr(_C, name)
    if isinstance(node, ast.ClassDef):
        members = [m.name for m in node.body if isinstance(m, ast.FunctionDef)]
        assert public(members) == public(vars(real))
        return
    # pybind11 writes the signature into the first line of the docstring.
    header = f"def {real.__doc__.splitlines()[0]}: ..."
    signature = ast.parse(header.replace("torch::", "")).body[0]
    got = [argument.arg for argument in signature.args.args]
    assert got == [argument.arg for argument in node.args.args]
    # What a stub promises to return, a call returns.
    returns_none = ast.unparse(signature.returns) == "None"
    assert returns_none == (ast.unparse(node.returns) == "None")


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


def test_a_wrong_argument_type_is_a_type_error():
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _C._set_device("openreg:1")


def test_errors_are_pytorchs_own_without_a_backtrace():
    with pytest.raises(RuntimeError) as error:
        _C._set_device(9)
    assert str(error.value) == (
        "The device index is out of range. It must be in [0, 2), but got 9."
    )


def test_public_functions_of_the_module_are_documented():
    for name, value in vars(torch.openreg).items():
        if not name.startswith("_") and inspect.isroutine(value):
            assert inspect.getdoc(value), name


def lets_others_run(call, seconds: float) -> bool:
    """Whether another Python thread runs while `call` is in C++.

    It must be quick: on a busy machine many calls pass before it is.
    """
    interval = sys.getswitchinterval()
    gate, ran = threading.Lock(), []

    def wait_and_tell():
        with gate:
            ran.append(True)

    gate.acquire()
    other = threading.Thread(target=wait_and_tell)
    other.start()
    try:
        sys.setswitchinterval(1000)  # The GIL changes hands if it is given.
        gate.release()
        end = time.monotonic() + seconds
        while not ran and time.monotonic() < end:
            call()
        return bool(ran)
    finally:
        sys.setswitchinterval(interval)
        other.join()


def test_what_may_wait_releases_the_gil():
    assert lets_others_run(lambda: _C._synchronize(0), PATIENCE)
    assert lets_others_run(_C._init, PATIENCE)
    assert not lets_others_run(_C._get_device, 1)
