"""A process that exits while its threads use the device exits cleanly."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.one_mode

# Daemon threads are left out: Python ends them inside of PyTorch's C++, and
# that aborts a process with plain CPU tensors just as well (torch 2.13).
BUSY = """
import threading
import torch

def work(index):
    torch.openreg.set_device(index % 2)
    net = torch.nn.Linear(32, 32).to("openreg")
    for _ in range(50):
        net(torch.rand(8, 32, device="openreg")).sum().backward()
        torch.rand(100).pin_memory().to("openreg").cpu()
    kept.append(net)

kept = [torch.ones(1000, device="openreg"), torch.Generator("openreg:1")]
for index in range(4):
    threading.Thread(target=work, args=(index,)).start()
graph = torch.ones(3, device="openreg", requires_grad=True).exp().sum()
print("leaving")
"""


# A graph that fails keeps its Python objects on autograd's thread.
FAILED_BACKWARD = """
import torch

class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("on purpose")

x = torch.ones(3, device="openreg", requires_grad=True)
y, grad = Fails.apply(x), torch.ones(3, device="openreg")
{before}
try:
    y.backward(grad)
except RuntimeError as error:
    assert "on purpose" in str(error)
print("leaving")
"""


# The drain at exit must not need a device that works.
DEVICE_FAILS = """
with torch.openreg.stream(torch.openreg.Stream()):
    x.detach().gather(0, torch.tensor([9], device="openreg"))
try:
    torch.openreg.synchronize()
except torch.AcceleratorError:
    pass
"""


def leave(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.stdout == "leaving\n"
    assert run.stderr == ""
    assert run.returncode == 0


def test_busy_processes_exit_cleanly() -> None:
    for _ in range(3):
        leave(BUSY)


@pytest.mark.parametrize("before", ["", DEVICE_FAILS], ids=["well", "failed"])
def test_a_process_exits_cleanly_right_after_a_backward_that_failed(
    before: str,
) -> None:
    for _ in range(3):
        leave(FAILED_BACKWARD.replace("{before}", before))


@pytest.mark.stress
def test_busy_processes_exit_cleanly_fifty_times() -> None:
    for _ in range(50):
        leave(BUSY)
