"""The everyday operations that the minimal set of operators must carry.

Run as a program it tries each of them and prints a JSON object that maps the
names of those that failed to their error.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable

import torch

HOST = torch.arange(6.0).reshape(2, 3)


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
    x.set_()  # type: ignore[call-overload]
    assert x.numel() == 0


def set_like() -> None:
    x = torch.empty(0, device="openreg")
    x.set_(HOST.to("openreg"))  # type: ignore[call-overload]
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
