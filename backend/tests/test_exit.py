"""A process that exits while its threads use the device exits cleanly."""

from __future__ import annotations

import pytest

from _fresh import prints

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


def leave(program: str, times: int) -> None:
    """Runs the program as a new interpreter first, then as forked ones."""
    for time in range(times):
        assert prints(program, new=time == 0) == "leaving\n"


def test_busy_processes_exit_cleanly() -> None:
    leave(BUSY, times=3)


@pytest.mark.parametrize("before", ["", DEVICE_FAILS], ids=["well", "failed"])
def test_a_process_exits_cleanly_right_after_a_backward_that_failed(
    before: str,
) -> None:
    leave(FAILED_BACKWARD.replace("{before}", before), times=3)


@pytest.mark.stress
def test_busy_processes_exit_cleanly_fifty_times() -> None:
    leave(BUSY, times=50)
