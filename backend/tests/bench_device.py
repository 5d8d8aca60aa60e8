"""What the device costs, beside PyTorch on the CPU; `nox -s bench` runs it.

Every column is a process of its own with one intra-op thread. In it, the CPU
and the device take turns, so that what disturbs one disturbs both, and the
median of each counts. A ratio is the device's median over the CPU's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import _examples
import bench_distributed
from torch_openreg import openreg

Call = Callable[[], object]
attention = torch.nn.functional.scaled_dot_product_attention

ROUNDS = 31
SAMPLE = 0.003  # seconds that one sample of a row takes at least
MILLION = 1 << 20
BOTH = "cpu", "openreg"

COLUMNS = {
    "auto": {"OPENREG_LAUNCH": "auto"},
    "async": {"OPENREG_LAUNCH": "async"},
    # What is left then is PyTorch's at::native::cpu_fallback.
    "copying fallback": {
        "OPENREG_LAUNCH": "auto",
        "OPENREG_OPERATORS": "minimal",
    },
}
TWO_THREADS = {
    "OMP_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "2",
    "OMP_PROC_BIND": "true",
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_PROC_BIND": "false",
}


# Every row stands with what it may cost at most, over the CPU.


class Lstm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.LSTM(64, 64, batch_first=True)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.cells(x)[0][:, -1])
        return y


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )


def cnn() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 8 * 8, 10),
    )


def transformer() -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(
        64, 4, 128, dropout=0.0, batch_first=True
    )
    return torch.nn.Sequential(
        torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 64, 10),
    )


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "MLP": (mlp, (64, 64)),
    "CNN": (cnn, (16, 3, 16, 16)),
    "LSTM": (Lstm, (16, 16, 64)),
    "transformer": (transformer, (16, 16, 64)),
}


def train_step(device: str, name: str, *, compiled: bool = False) -> Call:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    if compiled:
        model.compile()
    x = torch.randn(shape).to(device)
    y = torch.randint(10, shape[:1]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()  # last, so that a step begins without gradients

    return step


def rows(device: str) -> dict[str, Call]:
    """The same work for the CPU and for the device."""
    torch.manual_seed(0)

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(device)

    one, many = make(1), make(MILLION)
    weight = make(1).requires_grad_()
    small, large = make(64, 64), make(512, 512)
    image, kernel = make(8, 16, 32, 32), make(32, 16, 3, 3)
    heads = make(4, 8, 128, 64).requires_grad_()
    host = torch.randn(MILLION)
    lstm, steps = torch.nn.LSTM(64, 64).to(device), make(16, 16, 64)
    return {
        "empty": lambda: torch.empty(64, device=device),
        "views": lambda: small.view(8, 512)[1:5].t().unsqueeze(0),
        "add, 1": lambda: one + one,
        "mul, 1": lambda: one * 2,
        "relu, 1": lambda: one.relu(),
        "add, 1M": lambda: many + many,
        "add_, 1M": lambda: many.add_(1e-6),
        "mul, 1M": lambda: many * many,
        "sum, 1M": lambda: many.sum(),
        "relu, 1M": lambda: many.relu(),
        "softmax, 512 x 512": lambda: large.softmax(1),
        "layer_norm, 512 x 512": lambda: torch.nn.functional.layer_norm(
            large, (512,)
        ),
        "mm, 64": lambda: small @ small,
        "mm, 512": lambda: large @ large,
        "conv2d": lambda: torch.conv2d(image, kernel, padding=1),
        "sort, 512 x 512": lambda: large.sort(),
        "item": lambda: one.item(),
        "copy from the host, 1M": lambda: many.copy_(host),
        "copy to the host, 1M": lambda: host.copy_(many),
        "add, 1, both passes": lambda: torch.autograd.grad(
            weight + weight, weight
        ),
        "attention, both passes": lambda: (
            attention(heads, heads, heads).sum().backward()
        ),
        "LSTM, both passes": lambda: lstm(steps)[0].sum().backward(),
    } | {f"{name} train step": train_step(device, name) for name in MODELS}


AT_MOST = {
    "empty": 1.10,
    "views": 1.10,
    "add, 1": 1.20,
    "mul, 1": 1.20,
    "relu, 1": 1.20,
    "add, 1M": 1.05,
    "mul, 1M": 1.05,
    "sum, 1M": 1.05,
    "softmax, 512 x 512": 1.05,
    "layer_norm, 512 x 512": 1.05,
    "mm, 64": 1.05,
    "mm, 512": 1.05,
    "conv2d": 1.05,
    "sort, 512 x 512": 1.05,
    "attention, both passes": 1.15,
    "LSTM, both passes": 1.15,
    "MLP train step": 1.20,
    "CNN train step": 1.10,
    "transformer train step": 1.15,
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


def measure(*ends: str) -> dict[str, tuple[float, float] | None]:
    """The rows with such an end; None for what the device has no kernel for."""
    cpu, device = rows("cpu"), rows("openreg")
    found: dict[str, tuple[float, float] | None] = {}
    for name in (name for name in cpu if name.endswith(ends or "")):
        try:
            found[name] = compare(cpu[name], device[name])
        except NotImplementedError:
            found[name] = None
    return found


# What overlaps in `async`, in milliseconds.


def two_streams(kernel: Call, *, ordered: bool) -> float:
    first, second = openreg.Stream(), openreg.Stream()
    torch.accelerator.synchronize()
    start = time.perf_counter()
    with openreg.stream(first):
        kernel()
    if ordered:
        second.wait_event(first.record_event())
    with openreg.stream(second):
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


# Other costs


def memory_peak(device: str) -> int:
    """Bytes that a step of the transformer needs beyond what it began with."""
    step = train_step(device, "transformer")
    step()
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        where = str(event.device_type()).lower()
        if event.name() == "[memory]" and where.endswith(device):
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def profiling() -> dict[str, float]:
    """Microseconds of an `add_` of one element, beside each kind of profile."""
    from torch.profiler import ProfilerActivity, profile

    one = torch.ones(1, device="openreg")
    kinds: dict[str, Any] = {
        "no profile": contextlib.nullcontext,
        "of the host": lambda: profile(activities=[ProfilerActivity.CPU]),
        "of both": lambda: profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
        ),
    }
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            with kind():
                taken = seconds(lambda: one.add_(1), 2000)
            samples[name].append(taken / 2000 * 1e6)
    return {name: median(taken) for name, taken in samples.items()}


def import_times() -> tuple[float, float]:
    """Milliseconds of `import torch`, without the backend and with it."""
    times: dict[str, list[float]] = {"0": [], "1": []}
    for turn in range(11):
        for autoload in ("0", "1") if turn % 2 else ("1", "0"):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", "import torch"],
                env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
                check=True,
            )
            times[autoload].append((time.perf_counter() - start) * 1e3)
    return median(times["0"]), median(times["1"])


# The report


def ask(what: str, variables: dict[str, str]) -> Any:
    """Runs one of `PARTS` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, what],
        env=os.environ | ONE_THREAD | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def allocation() -> dict[str, list[float]]:
    """Bytes -> ns by pool_bench.cpp in C++: the pool's, the CPU's."""
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
        printed = subprocess.run(
            [program], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    lines = (line.split() for line in printed.splitlines())
    return {size: [float(time) for time in times] for size, *times in lines}


def collect() -> dict[str, Any]:
    """Everything that is measured, and where and when."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__.partition("+")[0],
        "cpu": cpu_name(),
        "rows": {name: ask("measure", env) for name, env in COLUMNS.items()},
        "at most": AT_MOST,
        "calling thread": ask("both passes", COLUMNS["auto"]),
        "two threads": {
            name: ask(what, TWO_THREADS | {"OPENREG_LAUNCH": mode})
            for name, (what, mode) in BACKWARD.items()
        },
        "allocation": allocation(),
        "overlap": ask("overlap", COLUMNS["async"]),
        "graphs": ask("graphs", COLUMNS["auto"]),
        "compiled": ask("compiled", COLUMNS["auto"]),
        "loaders": ask("loaders", COLUMNS["auto"]),
        "memory": ask("memory", COLUMNS["auto"]),
        "profile": ask("profile", COLUMNS["auto"] | {"KINETO_LOG_LEVEL": "5"}),
        "distributed": bench_distributed.measure(),
        "import": import_times(),
    }


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [x.partition(":")[2] for x in lines if x.startswith("model name")]
    name = names[0].strip() if names else "unknown CPU"
    return f"{os.cpu_count()} x {name}"


def show(figures: dict[str, Any]) -> None:
    columns = figures["rows"]
    head = "".join(f"{name:>22}" for name in columns)
    print(f"{'median, microseconds':24}{'CPU':>10}{head}{'at most':>10}")
    for row, (cpu, _) in columns["auto"].items():
        cells = ""
        for column in columns.values():
            if column[row] is None:
                cells += f"{'no kernel':>22}"
                continue
            beside, device = column[row]
            cells += f"{device:13.2f} ({device / beside:6.2f})"
        most = f"{AT_MOST[row]:10.2f}" if row in AT_MOST else ""
        print(f"{row:24}{cpu:10.2f}{cells}{most}")
    print("in brackets: over the CPU in the same process")
    print("\nbackward on the calling thread")
    for row, (cpu, device) in figures["calling thread"].items():
        print(f"{row:24}{cpu:10.2f}{device:13.2f} ({device / cpu:6.2f})")
    for name, steps in figures["two threads"].items():
        print(f"\ntwo threads, bound to their cores; {name}")
        for row, (cpu, device) in steps.items():
            print(f"{row:24}{cpu:10.2f}{device:13.2f} ({device / cpu:6.2f})")
    print("\nalloc + free from the cache, one thread, and the CPU's")
    for size, (pool, cpu) in figures["allocation"].items():
        print(f"{int(size):>12} bytes {pool:8.1f} ns {cpu:10.1f} ns")
    print("\nasync, milliseconds: on two streams, and ordered by an event")
    for name, (together, in_order) in figures["overlap"].items():
        print(f"{name:34}{together:8.1f}{in_order:8.1f}")
    print("\ngraphs: launched from Python, and replayed; torch.compile")
    pairs = figures["graphs"] | figures["compiled"] | figures["loaders"]
    for name, (first, second) in pairs.items():
        ratio = first / second
        print(f"{name:40}{first:10.2f}{second:13.2f} ({ratio:6.2f})")
    cpu, device = figures["memory"]
    print(f"\npeak of a transformer step, bytes: {cpu} on the CPU, ", end="")
    print(f"{device} on the device ({device / cpu:.2f})")
    print("\nadd_ of one element while a profile runs, microseconds")
    for name, taken in figures["profile"].items():
        print(f"{name:24}{taken:10.2f}")
    bench_distributed.show(figures["distributed"])
    bare, loaded = figures["import"]
    print(f"import torch: {bare:.0f} ms, with the backend {loaded:.0f} ms")


def on_calling_thread(*ends: str) -> dict[str, Any]:
    """The rows with such an end, while autograd has no thread of its own."""
    with torch.autograd.set_multithreading_enabled(False):
        return measure(*ends)


def ways() -> dict[str, float]:
    """What a call of one element costs more than on the CPU, by each way."""

    def calls(device: str) -> dict[str, Call]:
        one = torch.ones(1).to(device)
        matrix = one.view(1, 1)
        return {
            "shifted: add": lambda: one + one,
            "on aliases: mm": lambda: matrix @ matrix,
            "boxed, on aliases: maximum": lambda: torch.maximum(one, one),
        }

    cpu, device = calls("cpu"), calls("openreg")
    found = {name: compare(cpu[name], device[name]) for name in cpu}
    return {name: round(b - a, 2) for name, (a, b) in found.items()}


def graphs() -> dict[str, tuple[float, float]]:
    """What Python launches one by one, and the replay of the same."""
    stream = torch.Stream("openreg")

    def chain(elements: int) -> Call:
        x = torch.ones(elements, device="openreg")
        return lambda: [x.add_(1) for _ in range(100)]

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    model = mlp().to("openreg")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 64, device="openreg")
    y = torch.randint(10, (64,), device="openreg")
    calls = {f"100 add_, {n}": chain(n) for n in (1, 1000, 100_000, MILLION)}
    found = {}
    for name, call in {**calls, "MLP train step, SGD": step}.items():
        with stream:
            call()
        stream.synchronize()
        graph = torch.accelerator.Graph()
        with stream, graph:
            call()
        found[f"{name}: launched, replayed"] = compare(call, graph.replay)
    return found


def without_kernels() -> Any:
    """A compiler of graphs that only hand on their input.

    What is left is what Dynamo and AOTAutograd cost, whatever compiles.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def compile_graph(module: torch.fx.GraphModule, inputs: object) -> Any:
        return make_boxed_func(lambda *xs: xs[-1:])

    return aot_autograd(fw_compiler=compile_graph)


def compiled() -> dict[str, tuple[float, float]]:
    """Compiled on the CPU and the device; on the device alone, two ways."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        y = (x.sin() * 2 + x).relu() - 1
        return (y * y + x).abs().sqrt() * 3

    def products(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x @ x
        return x

    torch.manual_seed(0)
    found = {}
    fused = torch.compile(chain)
    nothing = torch.compile(chain, backend=without_kernels())
    for elements in (1000, MILLION):
        x = torch.rand(elements)
        cpu, device = (partial(fused, x.to(place)) for place in BOTH)
        name = f"ten operators, {elements}"
        eager = partial(chain, x.to("openreg"))
        found[f"{name}: CPU, device"] = compare(cpu, device)
        found[f"{name}: eager, compiled"] = compare(eager, device)
        found[f"{name}: eager, nothing"] = compare(
            eager, partial(nothing, x.to("openreg"))
        )
    few = torch.rand(16, 16, device="openreg") / 16
    plain = partial(torch.compile(products), few)
    replayed = torch.compile(products, mode="reduce-overhead")
    found["20 mm, 16: compiled, reduce-overhead"] = compare(
        plain, partial(replayed, few)
    )
    for threads in (False, True):
        where = "autograd's" if threads else "calling"
        with torch.autograd.set_multithreading_enabled(threads):
            steps = [train_step(at, "MLP", compiled=True) for at in BOTH]
            found[f"MLP train step, {where} thread: CPU, device"] = compare(
                *steps
            )
    return found


def loaders() -> dict[str, tuple[float, float]]:
    """An epoch on the CPU, and on the device with and without a copy ahead."""
    prefetch = _examples.load("prefetch").Prefetch
    data = TensorDataset(torch.rand(1024, 256), torch.randint(10, (1024,)))
    plain = DataLoader(data, 64)
    pinned = DataLoader(data, 64, pin_memory=True)

    def epoch(device: str, batches: Any) -> Call:
        model = nn.Sequential(
            nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
        )
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def run() -> None:
            for x, y in batches:
                x, y = (t.to(device, non_blocking=True) for t in (x, y))
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

        return run

    cpu = epoch("cpu", plain)
    ways = {"plain": plain, "pinned": pinned, "one ahead": prefetch(pinned)}
    with torch.autograd.set_multithreading_enabled(False):
        return {
            f"an epoch, {name}: CPU, device": compare(
                cpu, epoch("openreg", way)
            )
            for name, way in ways.items()
        }


# Where `backward` runs its kernels.
BACKWARD = {
    "autograd's thread": ("steps", "auto"),
    "a worker, as all kernels": ("steps", "async"),
    "the calling thread": ("steps, one thread", "auto"),
}
PARTS: dict[str, Callable[[], object]] = {
    "measure": measure,
    "both passes": lambda: on_calling_thread("both passes", "train step"),
    "steps": lambda: measure("train step"),
    "steps, one thread": lambda: on_calling_thread("train step"),
    "overlap": overlap,
    "graphs": graphs,
    "compiled": compiled,
    "loaders": loaders,
    "ways": ways,
    "profile": profiling,
    "memory": lambda: [memory_peak("cpu"), memory_peak("openreg")],
}


def main(arguments: list[str]) -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if arguments[:1] in ([name] for name in PARTS):
        print(json.dumps(PARTS[arguments[0]]()))
        return
    figures = collect()
    show(figures)
    if arguments[:1] == ["--record"]:
        text = json.dumps(figures, indent=1) + "\n"
        Path(arguments[1]).write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
