"""The tables of book/index.md."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from tables.common import ROOT, code, table


class Subsystem(NamedTuple):
    axis: str
    name: str
    page: str  # the chapter, or nothing while there is none
    probes: dict[str, str]  # what a user calls it -> code that must run


SUBSYSTEMS = [
    Subsystem(
        "Runtime",
        "Devices",
        "device",
        {
            "count, current, set": "torch.openreg.set_device(0)",
            "properties": "torch.openreg.get_device_properties()",
            "context": "with torch.openreg.device(1): pass",
        },
    ),
    Subsystem(
        "Runtime",
        "Hooks",
        "hooks",
        {"resizing a storage": "x.untyped_storage().resize_(64)"},
    ),
    Subsystem(
        "Runtime",
        "Streams",
        "stream",
        {
            "the default stream": "torch.accelerator.current_stream()",
            "more streams": "torch.Stream(device='openreg')",
            "`torch.openreg.Stream`": "torch.openreg.Stream",
        },
    ),
    Subsystem(
        "Runtime",
        "Events",
        "event",
        {"recording": "torch.Event(device='openreg').record()"},
    ),
    Subsystem(
        "Runtime",
        "Memory",
        "memory",
        {
            "caching pool": "torch.accelerator.empty_cache()",
            "statistics": "torch.accelerator.memory_stats()['num_ooms']",
            "pinned memory": "assert torch.empty(1).pin_memory().is_pinned()",
            "`record_stream`": "x.record_stream("
            "torch.accelerator.current_stream())",
            "snapshot": "torch.openreg.memory_snapshot()",
        },
    ),
    Subsystem(
        "Runtime",
        "Storage and serialization",
        "storage",
        {
            "`torch.save`, `torch.load`": "import io; f = io.BytesIO(); "
            "torch.save(x, f); f.seek(0); torch.load(f)",
            "`map_location`": "import io; f = io.BytesIO(); torch.save(x, f); "
            "f.seek(0); torch.load(f, map_location='openreg:1')",
            "pickle": "import pickle; pickle.loads(pickle.dumps(x))",
            "sharing between processes": "from multiprocessing.reduction "
            "import ForkingPickler as p; p.loads(p.dumps(x))",
            "DLPack capsules": "torch.from_dlpack(x.__dlpack__())",
            "`torch.from_dlpack(x)`": "torch.from_dlpack(x)",
            "`x.__dlpack_device__()`": "x.__dlpack_device__()",
        },
    ),
    Subsystem(
        "Runtime",
        "Random numbers",
        "generator",
        {
            "generators": "torch.Generator(device='openreg').manual_seed(1)",
            "state": "torch.openreg.set_rng_state("
            "torch.openreg.get_rng_state())",
            "graph-safe state": "torch.Generator('openreg')"
            ".graphsafe_get_state()",
        },
    ),
    Subsystem(
        "Runtime",
        "Graphs",
        "",
        {"`torch.accelerator.Graph`": "torch.accelerator.Graph()"},
    ),
    Subsystem(
        "Python frontend",
        "The device module",
        "frontend",
        {
            "`torch.openreg`": "torch.openreg.is_available()",
            "generated methods": "assert torch.ones(1).openreg().is_openreg",
        },
    ),
    Subsystem(
        "Python frontend",
        "Autoload",
        "autoload",
        {"entry point": "import sys; sys.modules['torch_openreg']"},
    ),
    Subsystem(
        "Operators",
        "The minimal set",
        "operators",
        {
            "factories, copies, views": "torch.empty(4, device='openreg')"
            ".view(2, 2).copy_(torch.ones(2, 2))[0].cpu()",
        },
    ),
    Subsystem(
        "Operators",
        "Models and their training",
        "operators",
        {
            "convolution": "torch.conv1d(x.view(1, 1, 4), x.view(1, 1, 4))",
            "recurrent cells": "torch.nn.LSTM(4, 4).to('openreg')("
            "x.view(1, 4))",
            "autograd": "x.clone().requires_grad_().sum().backward()",
            "attention": "torch.nn.functional.scaled_dot_product_attention("
            "x.view(2, 2), x.view(2, 2), x.view(2, 2))",
        },
    ),
    Subsystem(
        "Operators",
        "A view of the dispatcher",
        "dispatcher",
        {
            "trace": "import io; trace = torch.openreg.trace(io.StringIO()); "
            "trace.__enter__(); x + x; trace.__exit__(None, None, None)",
        },
    ),
    Subsystem(
        "Operators",
        "Loops by stub",
        "stubs",
        {"`abs`": "torch.abs(x, out=x.clone())"},
    ),
    Subsystem(
        "Operators",
        "Operators of your own",
        "custom-operators",
        {
            "kernel": "torch.ops.openreg.custom_abs(x)",
            "gradient": "y = x.clone().requires_grad_(); "
            "torch.ops.openreg.swiglu(y, x).sum().backward()",
            "fake kernel": "torch.ops.openreg.swiglu(*[x.to('meta')] * 2)",
        },
    ),
    Subsystem(
        "Operators",
        "Aliasing operators",
        "custom-aliasing",
        {
            "in C++": "y = x.clone().requires_grad_(); "
            "z = torch.ops.openreg.custom_autograd_fn_aliasing(y); "
            "assert z._base is y",
        },
    ),
    Subsystem(
        "Operators",
        "The fallback",
        "fallback",
        {
            "counting": "torch.openreg.fallback.counts()",
            "forbidding": "with torch.openreg.fallback.forbid('aten::add'): "
            "pass",
        },
    ),
    Subsystem(
        "Operators",
        "Sparse, quantized, nested",
        "operators-special",
        {
            "COO": "x.view(2, 2).to_sparse() @ x.view(2, 2)",
            "CSR": "x.view(2, 2).to_sparse_csr() @ x.view(2, 2)",
            "quantized": "torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)",
            "nested": "torch.nested.nested_tensor([x, x]).relu()",
        },
    ),
    Subsystem(
        "Operators",
        "PyTorch's own tests",
        "testing",
        {
            "device-generic tests": "import warnings; "
            "warnings.simplefilter('ignore'); "
            "from torch.testing._internal import common_device_type as c; "
            "c.PrivateUse1TestBase.setUpClass()",
        },
    ),
    Subsystem(
        "High-level modules",
        "Any accelerator",
        "accelerator",
        {
            "devices": "torch.accelerator.device_index(0).__enter__()",
            "streams": "torch.accelerator.current_stream().synchronize()",
            "memory": "torch.accelerator.memory_stats()",
        },
    ),
    Subsystem(
        "High-level modules",
        "Mixed precision",
        "amp",
        {
            "autocast": "with torch.amp.autocast('openreg', torch.bfloat16):\n"
            "    y = x.view(2, 2) @ x.view(2, 2)\n"
            "assert y.dtype == torch.bfloat16",
            "gradient scaling": "torch.amp.GradScaler('openreg').scale(x)",
        },
    ),
    Subsystem(
        "High-level modules",
        "Compiler",
        "",
        {"`torch.compile`, by Inductor": "torch.openreg.Scheduling"},
    ),
    Subsystem(
        "High-level modules",
        "Distributed",
        "",
        {
            "a backend of `torch.distributed`, for DDP and FSDP": "import "
            "torch.distributed as d;"
            "d.Backend.default_device_backend_map['openreg']",
        },
    ),
]


def runs(probe: str) -> bool:
    """Whether the installed backend can do it, asked by doing it."""
    import torch

    names = {"torch": torch, "x": torch.ones(4, device="openreg")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(probe, names)
    except (RuntimeError, AttributeError, AssertionError, KeyError, ValueError):
        return False  # other exceptions are mistakes in the probe
    return True


def state(probes: dict[str, str]) -> tuple[str, list[str]]:
    """The state in a word, and what is still missing."""
    missing = [name for name, probe in probes.items() if not runs(probe)]
    if not missing:
        return "works", []
    return "next" if len(missing) == len(probes) else "partly", missing


def subsystems() -> str:
    """What works today, found by trying it when this page was printed."""
    rows = []
    for axis, name, page, probes in SUBSYSTEMS:
        word, missing = state(probes)
        done = ", ".join(p for p in probes if p not in missing)
        tried = f"{done}; next: " * (word == "partly") + ", ".join(missing)
        where = f"[{page}](/chapters/{page}.md)" if page else ""
        rows.append((axis, name, f"**{word}**", where, tried or done))
    head = "Axis", "Subsystem", "State", "Chapter"
    return table((*head, "Tried while printing this page"), rows)


# PyTorch's own reference backend, file by file: theirs -> ours, and a remark.
REFERENCE = {
    "third_party/openreg/": ("device/", "The emulated device."),
    "include/Macros.h": ("csrc/runtime/device.h", "`OPENREG_EXPORT`"),
    "OpenRegException.h": ("csrc/runtime/device.h", "`OPENREG_CHECK`"),
    "OpenRegFunctions.h": ("csrc/runtime/device.cpp", "The device functions."),
    "OpenRegGuard.cpp": ("csrc/runtime/guard.cpp", "Streams are there, too."),
    "OpenRegHooks.h": (
        "csrc/runtime/hooks.cpp",
        "No header: only PyTorch calls them.",
    ),
    "OpenRegDeviceAllocator.cpp": (
        "csrc/runtime/allocator.cpp pool.cpp",
        "A caching pool with a capacity; the pool itself knows no PyTorch.",
    ),
    "OpenRegHostAllocator.cpp": (
        "csrc/runtime/host_allocator.cpp",
        "Pinned memory.",
    ),
    "OpenRegGenerator.cpp": (
        "csrc/runtime/generator.cpp",
        "Random operators draw from it.",
    ),
    "OpenRegStream.cpp": ("csrc/runtime/stream.cpp launch.cpp", ""),
    "OpenRegEvent.h": ("csrc/runtime/event.cpp", ""),
    "OpenRegSerialization.cpp": (
        "examples/custom_tensor.cpp",
        "`BackendMeta`, which this backend has no use for itself.",
    ),
    "OpenRegMinimal.cpp, native/Minimal.cpp": (
        "csrc/aten/factory.cpp view.cpp copy.cpp",
        "A kernel and its registration share a file.",
    ),
    "OpenRegExtra.cpp, native/Extra.cpp": (
        "csrc/aten/pointwise.cpp boxed.cpp fallback.cpp custom.cpp",
        "A file for each family.",
    ),
    "amp/autocast_mode.cpp": (
        "csrc/amp/autocast.cpp",
        "All operators of PyTorch's cast lists.",
    ),
    "csrc/Module.cpp": ("torch_openreg/csrc/bindings.cpp", "Python's side."),
    "csrc/stub.c": ("torch_openreg/csrc/stub.c", ""),
    "torch_openreg/__init__.py": ("torch_openreg/__init__.py", "Autoload."),
    "torch_openreg/openreg/": ("torch_openreg/openreg/", "`torch.openreg`"),
    "setup.py": ("CMakeLists.txt", "With `pyproject.toml`, one build."),
}


def our_files(cell: str) -> list[str]:
    """The paths below backend that a cell of REFERENCE names."""
    first, *others = cell.split()
    folder = first[: first.rindex("/") + 1] if "/" in first else ""
    return [first, *(folder + name for name in others)]


def reference_map() -> str:
    """File names of PyTorch's reference backend, and where to look here."""

    def row(theirs: str) -> tuple[str, ...]:
        cell, remark = REFERENCE[theirs]
        paths = our_files(cell)
        here = all((ROOT / "backend" / path).exists() for path in paths)
        names = code(theirs.split(", "))
        return names, code(paths) if here else "next", remark

    return table(
        ("There", "Here, below `backend`", "What it is"), map(row, REFERENCE)
    )
