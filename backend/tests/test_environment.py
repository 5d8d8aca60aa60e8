"""PyTorch's and pip's environment variables, as a user of openreg meets them.

Those of the device have their tests beside the code that reads them. Each
test here compares a process that has the variable with one that has not.
"""

import os
import subprocess
import sys

import pytest

from _fresh import prints

pytestmark = pytest.mark.one_mode

ADD = """
import os, torch
x = torch.empty(1 << 20, device="openreg")
before = set(os.listdir("/proc/self/task"))
y = x + 2
started = set(os.listdir("/proc/self/task")) - before
print(torch.get_num_threads(), len(started))
"""


@pytest.mark.proves("environment.OMP_NUM_THREADS")
def test_omp_num_threads_is_the_size_of_a_kernels_team() -> None:
    # The caller is one of the team. PyTorch never asks for more than cores.
    assert prints(ADD, OMP_NUM_THREADS="1") == "1 0\n"
    team = min(2, len(os.sched_getaffinity(0)))
    assert prints(ADD, OMP_NUM_THREADS="2") == f"{team} {team - 1}\n"


@pytest.mark.proves("environment.ATEN_CPU_CAPABILITY")
def test_aten_cpu_capability_chooses_the_kernels() -> None:
    code = """
import torch
x = torch.ones(5, device="openreg")
print(torch.backends.cpu.get_cpu_capability(), (x + 2).tolist())
"""
    chosen = prints(code, ATEN_CPU_CAPABILITY="default")
    assert chosen == "DEFAULT [3.0, 3.0, 3.0, 3.0, 3.0]\n"


RESERVE = """
import torch
x = torch.empty(2 << 20, dtype=torch.uint8, device="openreg")
print(torch.accelerator.memory_reserved())
"""


@pytest.mark.proves("environment.PYTORCH_ALLOC_CONF")
def test_pytorch_alloc_conf_sets_up_the_pool() -> None:
    assert prints(RESERVE, PYTORCH_ALLOC_CONF="") == f"{20 << 20}\n"
    large = "large_segment_size_mb:32"
    assert prints(RESERVE, PYTORCH_ALLOC_CONF=large) == f"{32 << 20}\n"


NONSENSE = """
import torch
for use in (
    lambda: torch.empty(1, device="openreg"),
    lambda: torch.empty(1, pin_memory=True),
    lambda: torch.openreg.memory_summary(),
):
    try:
        use()
    except ValueError as error:
        print(str(error).splitlines()[0])
print(torch.ones(2).sum().item())
"""


@pytest.mark.proves("messages.a-number-in-pytorch_alloc_conf-cannot-be")
@pytest.mark.parametrize("number", ["abc", "9" * 30])
def test_pytorch_alloc_conf_that_has_no_number_is_refused(number) -> None:
    settings = {"PYTORCH_ALLOC_CONF": f"max_split_size_mb:{number}"}
    *refusals, last = prints(NONSENSE, new=True, **settings).splitlines()
    assert len(refusals) == 3
    for refusal in refusals:
        assert refusal.startswith("A number in PYTORCH_ALLOC_CONF cannot be")
    assert last == "2.0"


FAIL = """
import torch
try:
    torch.openreg.set_device(7)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.proves("environment.TORCH_SHOW_CPP_STACKTRACES")
def test_torch_show_cpp_stacktraces_says_where() -> None:
    plain = prints(FAIL)
    assert plain.startswith("The device index is out of range.")
    assert "device.cpp" not in plain
    assert "openreg::" not in plain
    said = prints(
        FAIL, TORCH_SHOW_CPP_STACKTRACES="1", TORCH_DISABLE_ADDR2LINE="1"
    )
    assert plain.splitlines()[0] in said
    assert "openreg::set_device" in said


@pytest.mark.proves("environment.TORCH_SHOW_DISPATCH_TRACE")
def test_torch_show_dispatch_trace_does_nothing_in_a_release() -> None:
    traced = prints(FAIL, TORCH_SHOW_DISPATCH_TRACE="1")
    assert traced == prints(FAIL)


@pytest.mark.proves("environment.PIP_EXTRA_INDEX_URL")
def test_pip_extra_index_url_is_read_by_pip() -> None:
    said = subprocess.check_output(
        [sys.executable, "-m", "pip", "config", "list"],
        env=os.environ | {"PIP_EXTRA_INDEX_URL": "https://wheels.invalid"},
        text=True,
    )
    assert ":env:.extra-index-url='https://wheels.invalid'" in said
