"""A process that exits while its threads use the device exits cleanly."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def leave() -> None:
    run = subprocess.run(
        [sys.executable, "-c", BUSY],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.stdout == "leaving\n"
    assert run.stderr == ""
    assert run.returncode == 0


def test_busy_processes_exit_cleanly() -> None:
    for _ in range(3):
        leave()


@pytest.mark.stress
def test_busy_processes_exit_cleanly_fifty_times() -> None:
    for _ in range(50):
        leave()
