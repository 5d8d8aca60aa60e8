"""The everyday operations that the minimal set of operators must carry.

Run as a program it tries each of them and prints a JSON object that maps the
names of those that failed to their error. `ROWS` is the minimal set itself:
test_minimal.py proves it, and the book's operators chapter prints it.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from typing import NamedTuple

import torch

HOST = torch.arange(6.0).reshape(2, 3)


class Row(NamedTuple):
    """An operator of the minimal set, and an operation that needs it."""

    operator: str
    purpose: str
    breaks: str  # the name of a function below
    says: str  # how the error begins


BUILT_ON = "openreg: the CPU fallback is itself built on '{}'."
NO_VIEW = "openreg: the view operator '{}' has no kernel for the device"
COULD_NOT = "Could not run '{}' with arguments from the '{}' backend."


ROWS = [
    Row(
        "empty.memory_format",
        "New memory, in a memory format.",
        "zeros",
        BUILT_ON.format("aten::empty.memory_format"),
    ),
    Row(
        "empty_strided",
        "New memory, with given strides.",
        "to_device",
        BUILT_ON.format("aten::empty_strided"),
    ),
    Row(
        "as_strided",
        "Slices, transposes, expansions.",
        "slice_write",
        NO_VIEW.format("aten::as_strided"),
    ),
    Row(
        "view",
        "A new shape over the same elements.",
        "view",
        NO_VIEW.format("aten::view"),
    ),
    Row(
        "_reshape_alias",
        "reshape() where no copy is needed.",
        "reshape",
        NO_VIEW.format("aten::_reshape_alias"),
    ),
    Row(
        "unfold",
        "Sliding windows as a view.",
        "unfold",
        NO_VIEW.format("aten::unfold"),
    ),
    Row(
        "view_as_real",
        "Complex numbers as pairs.",
        "complex_to_real",
        NO_VIEW.format("aten::view_as_real"),
    ),
    Row(
        "view_as_complex",
        "Pairs as complex numbers.",
        "real_to_complex",
        NO_VIEW.format("aten::view_as_complex"),
    ),
    Row(
        "resize_",
        "A new size; `out=` needs it too.",
        "add_out",
        BUILT_ON.format("aten::resize_"),
    ),
    Row(
        "set_",
        "A tensor lets its storage go.",
        "set_nothing",
        BUILT_ON.format("aten::set_"),
    ),
    Row(
        "set_.source_Tensor",
        "A tensor takes another's storage.",
        "set_like",
        BUILT_ON.format("aten::set_.source_Tensor"),
    ),
    Row(
        "set_.source_Storage",
        "A tensor over a storage.",
        "save_and_load",
        BUILT_ON.format("aten::set_.source_Storage"),
    ),
    Row(
        "set_.source_Storage_storage_offset",
        "A tensor over a part of a storage.",
        "deepcopy",
        BUILT_ON.format("aten::set_.source_Storage_storage_offset"),
    ),
    Row(
        "_copy_from",
        "Every copy to, from and on the device.",
        "to_host",
        BUILT_ON.format("aten::_copy_from"),
    ),
    Row(
        "_copy_from_and_resize",
        "The fallback's results come back with it.",
        "add_in_place",
        BUILT_ON.format("aten::_copy_from_and_resize"),
    ),
    Row(
        "record_stream",
        "A second stream uses a tensor.",
        "record_stream",
        COULD_NOT.format("aten::record_stream", "CPU"),
    ),
    Row(
        "native_dropout",
        "It draws and takes no generator, so the fallback refuses it.",
        "dropout",
        "openreg: 'aten::native_dropout' may draw random numbers",
    ),
    Row(
        "fallback",
        "All the rest, on the host.",
        "matmul",
        COULD_NOT.format("aten::mm.out", "openreg"),
    ),
]


def to_device() -> None:
    assert HOST.to("openreg").device.type == "openreg"


def to_host() -> None:
    assert HOST.to("openreg").cpu().equal(HOST)


def zeros() -> None:
    assert torch.zeros(2, device="openreg").cpu().equal(torch.zeros(2))


def add() -> None:
    assert (HOST.to("openreg") + 1).cpu().equal(HOST + 1)


def add_in_place() -> None:
    x = HOST.to("openreg")
    assert x.add_(1) is x
    assert x.cpu().equal(HOST + 1)


def add_out() -> None:
    out = torch.empty(0, device="openreg")
    torch.add(HOST.to("openreg"), 1, out=out)
    assert out.cpu().equal(HOST + 1)


def matmul() -> None:
    x = HOST.to("openreg")
    assert (x @ x.t()).cpu().equal(HOST @ HOST.t())


def item() -> None:
    assert HOST.to("openreg")[1, 2].item() == 5


def print_tensor() -> None:
    assert "device='openreg:0'" in repr(HOST.to("openreg"))


def slice_write() -> None:
    x = HOST.to("openreg")
    x[:, 1] = 9
    assert x.cpu()[:, 1].tolist() == [9, 9]


def view() -> None:
    x = HOST.to("openreg")
    x.view(3, 2)[0, 0] = 7
    assert x.cpu()[0, 0] == 7


def reshape() -> None:
    x = HOST.to("openreg")
    x[:, :2].reshape(2, 1, 2)[0, 0, 0] = 7
    assert x.cpu()[0, 0] == 7


def transpose() -> None:
    assert HOST.to("openreg").t().contiguous().cpu().equal(HOST.t())


def unfold() -> None:
    assert HOST.to("openreg").unfold(1, 2, 1).cpu().equal(HOST.unfold(1, 2, 1))


def complex_to_real() -> None:
    z = torch.ones(2, dtype=torch.complex64, device="openreg")
    assert torch.view_as_real(z).cpu().tolist() == [[1, 0], [1, 0]]


def real_to_complex() -> None:
    pairs = torch.ones(2, 2, device="openreg")
    assert torch.view_as_complex(pairs).cpu().tolist() == [1 + 1j, 1 + 1j]


def resize() -> None:
    x = HOST.to("openreg")
    x.resize_(3, 3)
    assert x.cpu().flatten()[:6].equal(HOST.flatten())


def set_nothing() -> None:
    x = HOST.to("openreg")
    x.set_()
    assert x.numel() == 0


def set_like() -> None:
    x = torch.empty(0, device="openreg")
    x.set_(HOST.to("openreg"))
    assert x.cpu().equal(HOST)


def save_and_load() -> None:
    file = io.BytesIO()
    torch.save(HOST.to("openreg"), file)
    file.seek(0)
    assert torch.load(file).cpu().equal(HOST)


def deepcopy() -> None:
    assert copy.deepcopy(HOST.to("openreg")).cpu().equal(HOST)


def record_stream() -> None:
    x = HOST.to("openreg")
    x.record_stream(torch.accelerator.current_stream())


def dropout() -> None:
    before = torch.get_rng_state()
    torch.nn.functional.dropout(HOST.to("openreg"))
    assert torch.get_rng_state().equal(before)


def between_devices() -> None:
    assert HOST.to("openreg:0").to("openreg:1").cpu().equal(HOST)


def train() -> None:
    layer = torch.nn.Linear(3, 2).to("openreg")
    layer(HOST.to("openreg")).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.device.type == "openreg"


EVERYDAY: list[Callable[[], None]] = [
    to_device,
    to_host,
    zeros,
    add,
    add_in_place,
    add_out,
    matmul,
    item,
    print_tensor,
    slice_write,
    view,
    reshape,
    transpose,
    unfold,
    complex_to_real,
    real_to_complex,
    resize,
    set_nothing,
    set_like,
    save_and_load,
    deepcopy,
    record_stream,
    dropout,
    between_devices,
    train,
]


def failures() -> dict[str, str]:
    """Tries each operation; returns the errors of those that failed."""
    failed = {}
    for operation in EVERYDAY:
        try:
            operation()
        except Exception as error:
            failed[operation.__name__] = f"{type(error).__name__}: {error}"
    return failed


if __name__ == "__main__":
    print(json.dumps(failures()))
