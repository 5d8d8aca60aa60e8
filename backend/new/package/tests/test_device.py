"""The device itself: what is on it, and what it refuses."""

import io
import subprocess
import sys

import pytest
import torch

X = torch.arange(6.0).view(2, 3)
LAST = torch.openreg.device_count() - 1


def test_torch_alone_brings_the_device() -> None:
    code = "import torch; print(torch.ones(2, device='openreg') + 1)"
    ran = subprocess.check_output([sys.executable, "-P", "-c", code], text=True)
    assert ran == "tensor([2., 2.], device='openreg:0')\n"
    assert str(torch.accelerator.current_accelerator()) == "openreg"


def test_each_device_has_its_own_tensors() -> None:
    with torch.openreg.device(LAST):
        x = torch.ones(2, device="openreg")
    assert x.device.index == LAST
    assert torch.openreg.current_device() == 0
    assert x.to("openreg:0").cpu().tolist() == [1, 1]


def test_a_number_out_of_range_is_named() -> None:
    with pytest.raises(RuntimeError, match=rf", but got {LAST + 1}\."):
        torch.openreg.set_device(LAST + 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t(),
        lambda x: x.t().to(torch.int64),
        lambda x: x[:, ::2].clone(),
        lambda x: torch.view_as_complex(x[:, :2].contiguous()).conj(),
        lambda x: x.expand(2, 2, 3) * 2,
        lambda x: x[torch.tensor([1, 0])],
        lambda x: torch.zeros_like(x).copy_(x.half()),
    ],
)
def test_views_and_copies_are_the_cpus(change) -> None:
    assert torch.equal(change(X.openreg()).cpu(), change(X))


def test_what_is_written_through_a_view_is_in_its_base() -> None:
    x = X.openreg()
    x.t()[1] = 7
    assert x[:, 1].tolist() == [7, 7]


def test_a_tensor_is_saved_and_loaded() -> None:
    file = io.BytesIO()
    torch.save(X.openreg(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded.device == torch.device("openreg:0")
    assert torch.equal(loaded.cpu(), X)


def test_two_devices_in_one_call_are_refused() -> None:
    for other in (X, *([X.to(f"openreg:{LAST}")] if LAST else [])):
        with pytest.raises(RuntimeError, match="to be on the same device"):
            X.openreg() + other


def test_a_full_device_is_named() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="openreg out of memory"):
        torch.empty(2**50, device="openreg")


def test_a_forked_process_is_told() -> None:
    code = "import os, torch; x = torch.ones(1, device='openreg')\n"
    code += "os.fork() and os.wait() or torch.openreg.synchronize()"
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert "Cannot re-initialize openreg in forked subprocess" in ran.stderr
