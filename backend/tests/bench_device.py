"""What the device costs, beside PyTorch on the CPU; `nox -s bench` runs it.

Every column is a process of its own with one intra-op thread. In it, the CPU
and the device take turns, so that what disturbs one disturbs both, and the
median of each counts. A ratio is the device's median over the CPU's.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

Call = Callable[[], object]
attention = torch.nn.functional.scaled_dot_product_attention

ROUNDS = 31
SAMPLE = 0.003  # seconds that one sample of a row takes at least
MILLION = 1 << 20

COLUMNS = {
    "auto": {"OPENREG_LAUNCH": "auto"},
    "async": {"OPENREG_LAUNCH": "async"},
    # What is left then is PyTorch's at::native::cpu_fallback.
    "copying fallback": {
        "OPENREG_LAUNCH": "auto",
        "OPENREG_OPERATORS": "minimal",
    },
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_PROC_BIND": "false",
}


def train_step(device: str) -> Call:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    ).to(device)
    x = torch.randn(64, 256).to(device)
    y = torch.randint(10, (64,)).to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()

    return step


def rows(device: str) -> dict[str, Call]:
    """The same work for the CPU and for the device."""
    torch.manual_seed(0)

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(device)

    one, many = make(1), make(MILLION)
    small, large = make(64, 64), make(512, 512)
    image, kernel = make(8, 16, 32, 32), make(32, 16, 3, 3)
    heads = make(4, 8, 128, 64).requires_grad_()
    host = torch.randn(MILLION)
    return {
        "empty": lambda: torch.empty(64, device=device),
        "add, 1": lambda: one + one,
        "add, 1M": lambda: many + many,
        "add_, 1M": lambda: many.add_(1e-6),
        "relu, 1M": lambda: many.relu(),
        "mm, 64": lambda: small @ small,
        "mm, 512": lambda: large @ large,
        "softmax, 512 x 512": lambda: large.softmax(1),
        "item": lambda: one.item(),
        "copy from the host, 1M": lambda: many.copy_(host),
        "copy to the host, 1M": lambda: host.copy_(many),
        "attention, both passes": lambda: (
            attention(heads, heads, heads).sum().backward()
        ),
        "conv2d": lambda: torch.conv2d(image, kernel, padding=1),
        "MLP train step": train_step(device),
    }


def seconds(call: Call, times: int) -> float:
    """How long `times` calls and the work that they launched take."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.accelerator.synchronize()
    return time.perf_counter() - start


def compare(cpu: Call, device: Call) -> tuple[float, float]:
    """The medians of both, in microseconds."""
    seconds(cpu, 3)
    slower = max(seconds(cpu, 3), seconds(device, 3)) / 3
    times = max(1, int(SAMPLE / slower))
    samples: dict[Call, list[float]] = {cpu: [], device: []}
    for turn in range(ROUNDS):
        for call in (cpu, device) if turn % 2 else (device, cpu):
            samples[call].append(seconds(call, times) / times * 1e6)
    return median(samples[cpu]), median(samples[device])


def ways(device: str) -> dict[str, Call]:
    """An operator of one element for each way that the device has."""
    one = torch.ones(1).to(device)
    matrix = one.view(1, 1)
    return {
        "shifted: add": lambda: one + one,
        "on aliases: mm": lambda: matrix @ matrix,
        "boxed, on aliases: maximum": lambda: torch.maximum(one, one),
    }


def surplus() -> dict[str, float]:
    """What a call costs more than on the CPU, in microseconds."""
    cpu, device = ways("cpu"), ways("openreg")
    found = {name: compare(cpu[name], device[name]) for name in cpu}
    return {name: ours - theirs for name, (theirs, ours) in found.items()}


def measure() -> dict[str, tuple[float, float] | None]:
    """Every row; None for what the device has no kernel for."""
    cpu, device = rows("cpu"), rows("openreg")
    found: dict[str, tuple[float, float] | None] = {}
    for name in cpu:
        try:
            found[name] = compare(cpu[name], device[name])
        except NotImplementedError:
            found[name] = None
    return found


# What overlaps in `async`, in milliseconds.


def two_streams(kernel: Call, *, ordered: bool) -> float:
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    torch.accelerator.synchronize()
    start = time.perf_counter()
    with torch.openreg.stream(first):
        kernel()
    if ordered:
        second.wait_event(first.record_event())
    with torch.openreg.stream(second):
        kernel()
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) * 1e3


def matrix_of_50_ms() -> torch.Tensor:
    """A matrix whose product with itself takes one thread 50 ms."""
    trial = torch.ones(1024, 1024, device="openreg")
    each = median(seconds(lambda: trial @ trial, 1) for _ in range(5))
    size = int(1024 * (0.050 / each) ** (1 / 3))
    return torch.ones(size, size, device="openreg")


def overlap() -> dict[str, tuple[float, float]]:
    from torch_openreg.openreg.testing import sleep

    matrix = matrix_of_50_ms()
    kernels: dict[str, Call] = {
        "two sleeps of 50 ms": lambda: sleep(50),
        f"two mm, {len(matrix)}, one thread each": lambda: matrix @ matrix,
    }
    found = {}
    for name, kernel in kernels.items():
        two_streams(kernel, ordered=False)
        together, in_order = (
            median(two_streams(kernel, ordered=ordered) for _ in range(5))
            for ordered in (False, True)
        )
        found[name] = (together, in_order)
    return found


# The report


def ask(what: str, variables: dict[str, str]) -> dict[str, Any]:
    """Runs one of the functions above in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, what],
        env=os.environ | ONE_THREAD | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def allocation() -> str:
    """What pool_bench.cpp prints, a C++ program that allocates and frees."""
    from torch_openreg import _C

    here = Path(__file__).parent
    torch_at = Path(torch.__file__).parent
    libraries = [Path(_C.__file__).parent / "lib", torch_at / "lib"]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "pool_bench"))
        subprocess.run(
            [
                *shlex.split(os.environ.get("CXX", "c++")),
                *("-std=c++20", "-O2", f"-I{torch_at / 'include'}"),
                str(here / "pool_bench.cpp"),
                *(f"-L{path}" for path in libraries),
                *(f"-Wl,-rpath,{path}" for path in libraries),
                "-Wl,--no-as-needed",
                *("-ltorch_openreg", "-lc10", "-ltorch_cpu"),
                *("-o", program),
            ],
            check=True,
        )
        return subprocess.run(
            [program], stdout=subprocess.PIPE, text=True, check=True
        ).stdout


def report() -> None:
    columns = {name: ask("measure", env) for name, env in COLUMNS.items()}
    head = "".join(f"{name:>22}" for name in columns)
    print(f"{'median, microseconds':24}{'CPU':>10}{head}")
    for row, (cpu, _) in columns["auto"].items():
        cells = ""
        for column in columns.values():
            if column[row] is None:
                cells += f"{'no kernel':>22}"
                continue
            beside, device = column[row]
            cells += f"{device:13.2f} ({device / beside:6.2f})"
        print(f"{row:24}{cpu:10.2f}{cells}")
    print("in brackets: over the CPU in the same process\n")
    found = ask("surplus", COLUMNS["auto"])
    beside, copied = columns["copying fallback"]["add, 1"]
    found["copying fallback: add"] = copied - beside
    print("a call of 1 element costs more than the CPU's by, microseconds")
    for name, more in found.items():
        print(f"{name:34}{more:8.2f}")
    print()
    print("alloc + free from the cache, one thread")
    for line in allocation().splitlines():
        size, nanoseconds = line.split()
        print(f"{int(size):>12} bytes {nanoseconds:>8} ns")
    print("\nasync, milliseconds: on two streams, and ordered by an event")
    found = ask("overlap", COLUMNS["async"])
    for name, (together, in_order) in found.items():
        print(f"{name:34}{together:8.1f}{in_order:8.1f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    what = sys.argv[1:]
    if what == ["measure"]:
        print(json.dumps(measure()))
    elif what == ["surplus"]:
        print(json.dumps(surplus()))
    elif what == ["overlap"]:
        print(json.dumps(overlap()))
    else:
        report()
