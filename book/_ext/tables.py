"""Tables for `{generated}`: each function returns Markdown.

A table is made from the package or from the one list beside its function, so
that a page never repeats what the code knows. Add a function, name it in a
page, and add to tests/test_tables.py what must hold for its rows.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. A bar inside a cell is escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


class Variable(NamedTuple):
    name: str
    values: str
    default: str
    meaning: str
    test: str  # file::function in backend/tests


VARIABLES = [
    Variable(
        "OPENREG_DEVICE_COUNT",
        "0 to 16",
        "2",
        "How many devices there are.",
        "test_device.py::test_count_is_read",
    ),
    Variable(
        "OPENREG_DEVICE_MEMORY",
        "bytes; `K`, `M` and `G` multiply",
        "4G",
        "The capacity of each device.",
        "test_device.py::"
        "test_capacity_is_read_in_bytes_and_rounded_up_to_pages",
    ),
    Variable(
        "OPENREG_LAUNCH",
        "`auto`, `async`, `blocking`",
        "`auto`",
        "When a kernel runs. So far all three run it at the call.",
        "test_device.py::test_malformed_values_are_refused",
    ),
    Variable(
        "OPENREG_SEGV_HANDLER",
        "`0`, `1`",
        "`1`",
        "`0` leaves out the sentence that explains a fault.",
        "test_device_fault.py::test_handler_can_be_left_out",
    ),
    Variable(
        "OPENREG_OPERATORS",
        "`full`, `minimal`",
        "`full`",
        "`minimal` registers only the operators that no backend can lack.",
        "test_minimal.py::test_everyday_operations_work_on_the_minimal_set",
    ),
    Variable(
        "OPENREG_OMIT",
        "an operator's name",
        "none",
        "Leaves this operator unregistered, to see what breaks.",
        "test_minimal.py::test_a_missing_row_breaks_its_operation",
    ),
    Variable(
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
        "`0`, `1`",
        "`1`",
        "With `0`, `import torch` loads no backend: import `torch_openreg`.",
        "test_autoload.py::test_switched_off_it_can_be_imported_by_hand",
    ),
    Variable(
        "TORCH_SHOW_DISPATCH_TRACE",
        "`1`",
        "unset",
        "Traces the dispatcher in debug builds of PyTorch; "
        "in a release, nothing happens.",
        "test_environment.py::"
        "test_torch_show_dispatch_trace_does_nothing_in_a_release",
    ),
    Variable(
        "TORCH_SHOW_CPP_STACKTRACES",
        "`1`",
        "unset",
        "With `1`, an error raised in C++ says which functions led to it, "
        "ours among them.",
        "test_environment.py::test_torch_show_cpp_stacktraces_says_where",
    ),
    Variable(
        "OMP_NUM_THREADS",
        "a number",
        "the cores",
        "How many host threads a kernel of the emulator uses.",
        "test_environment.py::"
        "test_omp_num_threads_is_the_size_of_a_kernels_team",
    ),
    Variable(
        "ATEN_CPU_CAPABILITY",
        "`default`, `avx2`, `avx512`",
        "the best there is",
        "Which form of ATen's CPU kernels plays the device's part.",
        "test_environment.py::test_aten_cpu_capability_chooses_the_kernels",
    ),
    Variable(
        "PYTORCH_ALLOC_CONF",
        "see PyTorch",
        "unset",
        "Settings of PyTorch's own device allocators. "
        "The pool of openreg does not read it.",
        "test_environment.py::test_pytorch_alloc_conf_is_not_the_pools",
    ),
    Variable(
        "CXX",
        "a program",
        "`c++`",
        "The compiler that the commands of this project use.",
        "test_house.py::test_a_missing_compiler_ends_in_one_line",
    ),
    Variable(
        "PIP_EXTRA_INDEX_URL",
        "an address",
        "unset",
        "Where pip looks for packages, too; "
        "the README uses it for PyTorch's CPU build.",
        "test_environment.py::test_pip_extra_index_url_is_read_by_pip",
    ),
]


def environment() -> str:
    """Every environment variable, ours first and PyTorch's after them."""
    return table(
        ("Variable", "Values", "Default", "What it does", "Test"),
        (
            (f"`{v.name}`", v.values, v.default, v.meaning, f"`{v.test}`")
            for v in VARIABLES
        ),
    )


def commands() -> str:
    """The README's commands, which .ci/run executes as they stand."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(
        r"<!-- commands -->\n\n(```sh\n.*?^```$)", readme, re.M | re.S
    )
    assert found, "README.md has no fence below its comment, commands"
    return found[1]


class Lookup(NamedTuple):
    name: str
    files: str  # of PyTorch, that look the name up in the device module
    use: str  # what leads there
    without: str  # what it then answers, as it is; "..." for what is left out
    means: str


MISSING = "AttributeError: module 'torch_openreg.openreg' has no attribute "
NO_SEED = (
    "UserWarning: Set seed for `openreg` device does not take effect, please "
    "add API's `_is_in_bad_fork` and `manual_seed_all` to `openreg` device "
    "module."
)
LOOKUPS = [
    Lookup(
        "_lazy_init",
        "csrc/utils/device_lazy_init.h",
        "the first tensor on the device",
        "False",
        "`is_initialized()` stays false; seeds set early never arrive.",
    ),
    Lookup(
        "_initialized",
        "utils/checkpoint.py",
        "`torch.utils.checkpoint` around a dropout",
        "False",
        "The forward pass and its repetition drop different elements: "
        "the gradient is wrong, and nothing says so.",
    ),
    Lookup(
        "is_initialized",
        "_subclasses/fake_tensor.py",
        "a fake tensor on `openreg`",
        f"{MISSING}'is_initialized'",
        "",
    ),
    Lookup(
        "is_available",
        "accelerator/__init__.py _utils.py serialization.py autograd/graph.py",
        "`torch.accelerator.is_available()`",
        f"{MISSING}'is_available'",
        "",
    ),
    Lookup(
        "device_count",
        "accelerator/__init__.py random.py serialization.py _utils.py",
        "`torch.accelerator.device_count()`",
        f"{MISSING}'device_count'",
        "",
    ),
    Lookup(
        "current_device",
        "utils/backend_registration.py _utils.py _subclasses/fake_tensor.py",
        "`torch.ones(1).openreg()` inside `torch.openreg.device(1)`",
        "device(type='openreg', index=0)",
        "The tensor goes to device 0, whichever is current.",
    ),
    Lookup(
        "device",
        "_utils.py utils/checkpoint.py",
        "a storage's `.to(device)`",
        f"{MISSING}'device'",
        "",
    ),
    Lookup(
        "synchronize",
        "autograd/profiler.py",
        "the end of `torch.autograd.profiler.profile`",
        "0",
        "The profile ends while work may still run.",
    ),
    Lookup(
        "get_device_properties",
        "_utils.py",
        "`torch._utils._get_devices_properties`",
        f"{MISSING}'get_device_properties'",
        "",
    ),
    Lookup(
        "_is_in_bad_fork", "random.py", "`torch.manual_seed(1)`", NO_SEED, ""
    ),
    Lookup(
        "manual_seed_all",
        "random.py",
        "`torch.manual_seed(1)`",
        NO_SEED,
        "Two names, one warning: with either missing, no device is seeded.",
    ),
    Lookup(
        "get_rng_state",
        "random.py utils/checkpoint.py _functorch/_aot_autograd/utils.py",
        "`torch.random.fork_rng()`",
        f"{MISSING}'get_rng_state'",
        "",
    ),
    Lookup(
        "set_rng_state",
        "random.py utils/checkpoint.py",
        "the end of `torch.random.fork_rng()`",
        f"{MISSING}'set_rng_state'",
        "",
    ),
    Lookup(
        "default_generators",
        "_prims/rng_prims.py",
        "a random operator in a captured graph",
        "AssertionError: GraphSafe RNG operations not supported for device "
        "'openreg' (no torch.openreg.default_generators)",
        "",
    ),
    Lookup(
        "_get_generator",
        "_functorch/_aot_autograd/utils.py",
        "the same graph, traced by `torch.compile`",
        "AssertionError: Device type 'openreg' does not implement "
        "_get_generator. Registered graphsafe RNG types: ['cuda'].",
        "Asked of registered device types only.",
    ),
    Lookup(
        "get_amp_supported_dtype",
        "amp/autocast_mode.py",
        '`torch.autocast("openreg")`',
        "AssertionError: Tried to use AMP with the `openreg` backend, but the "
        "backend has not registered a module or ... "
        "But the func `get_amp_supported_dtype` is missing.",
        "",
    ),
    Lookup(
        "_utils",
        "serialization.py",
        '`torch.load(..., map_location="openreg:1")`',
        "device(type='openreg', index=1)",
        "Nothing is lost: without `_utils._get_device_index`, "
        "`torch.device` reads the location.",
    ),
    Lookup(
        "sparse",
        "_utils.py",
        "a sparse storage's `.to(device)`",
        "False",
        "No storage is sparse any more, so nobody gets there.",
    ),
    Lookup(
        "FloatStorage",
        "storage.py",
        "`Tensor.storage_type()`",
        "None",
        "These classes, one a dtype, are history; none is needed.",
    ),
]


def lookups() -> str:
    """What PyTorch looks up by name in the module of a device."""
    import torch

    def row(lookup: Lookup) -> tuple[str, ...]:
        absent = not hasattr(torch.openreg, lookup.name)
        who = lookup.files.replace("_", r"\_").replace(" ", "<br>")
        said = f"``{lookup.without}``{{.said}} " * (": " in lookup.without)
        seen = f"{lookup.use}: {said}{lookup.means}"
        return (
            f"`{lookup.name}`" + ", which openreg lacks" * absent,
            who,
            seen[0].upper() + seen[1:],
        )

    head = "Name", "Who looks it up, in `torch`", "What happens without it"
    return table(head, map(row, LOOKUPS))


# How PyTorch's files name the module of a device, and use a name of it.
HOLDER = (
    r"(?:\bdevice_mod(?:ule)?|custom_device_mod|device_handle|self\.__backend"
    r"|privateuse1_backend_module|lambda m: (?:list\(range\()?m"
    r"|getattr\(\s*torch, [\w.]+\)|get_device_module\([\w.]*\))"
)
LOOKED_UP = re.compile(
    rf"{HOLDER}\.([A-Za-z_]\w*)|(?:has|get)attr\(\s*{HOLDER}, [\"'](\w+)"
)


def find_lookups(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Name -> the PyTorch files that look it up in a device's module."""
    found: dict[str, list[Path]] = {}
    for file in sorted(files):
        for names in LOOKED_UP.findall(file.read_text("utf-8")):
            users = found.setdefault("".join(names), [])
            if file not in users:
                users.append(file)
    return found


def further_lookups() -> str:
    """The names that torch.distributed and torch.compile add to those."""
    import torch

    root = Path(torch.__file__).parent
    files = (root / folder for folder in ("distributed", "_dynamo"))
    found = find_lookups(file for f in files for file in f.rglob("*.py"))
    known = {lookup.name for lookup in LOOKUPS}
    rows = (
        (
            f"`{name}`",
            f"`torch/{users[0].relative_to(root)}`"
            + f" and {len(users) - 1} more" * (len(users) > 1),
            "yes" if hasattr(torch.openreg, name) else "not yet",
        )
        for name, users in sorted(found.items())
        if name not in known
    )
    return table(("Name", "Who looks it up", "`torch.openreg` has it"), rows)


# The device's C API: a row for each comment of backend/device/openreg.h.

DEVICE_HEADER = ROOT / "backend" / "device" / "openreg.h"


class DeviceCall(NamedTuple):
    names: list[str]
    meaning: str  # the comment's first sentence
    twin: str  # what it says after "CUDA:"


def comments_of(text: str, begin: str) -> Iterable[tuple[str, str]]:
    """(comment, declarations below it) for declarations that begin so."""
    for found in re.finditer(
        r"/\*(?P<comment>(?:(?!\*/).)*)\*/\s*"
        rf"(?P<declared>(?:{begin}[^;]*;\s*)+)",
        text,
        re.S,
    ):
        comment = re.sub(r"^ \*", "", found["comment"], flags=re.M)
        yield " ".join(comment.split()), found["declared"]


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", text)[0]


def device_calls() -> list[DeviceCall]:
    calls = []
    text = DEVICE_HEADER.read_text("utf-8")
    for comment, declared in comments_of(text, "OPENREG_API"):
        meaning, _, twin = comment.partition("CUDA: ")
        names = re.findall(r"\b(or[A-Z]\w+)\(", declared)
        calls.append(
            DeviceCall(names, first_sentence(meaning), twin.rstrip("."))
        )
    return calls


# A call, or an error, and the test in backend/tests that provokes it.
DEVICE_TESTS = {
    "orGetErrorName": "test_device.py::test_errors_have_names_and_meanings",
    "orGetErrorString": "test_device.py::test_errors_have_names_and_meanings",
    "orGetLastError": "test_device.py::test_last_error_stays_until_it_is_taken",
    "orPeekAtLastError": "test_device.py::"
    "test_last_error_stays_until_it_is_taken",
    "orGetErrorDetail": "test_device.py::"
    "test_last_error_stays_until_it_is_taken",
    "orGetDeviceCount": "test_device.py::"
    "test_device_ranges_are_contiguous_and_apart_from_the_kernels",
    "orGetDevice": "test_device.py::test_current_device_is_the_threads_own",
    "orSetDevice": "test_device.py::test_index_out_of_range_changes_nothing",
    "orGetDeviceProperties": "test_device.py::test_properties",
    "orDeviceSynchronize": "test_device.py::"
    "test_synchronize_has_nothing_to_wait_for",
    "orGetAddressSpace": "test_device.py::"
    "test_device_ranges_are_contiguous_and_apart_from_the_kernels",
    "orMalloc": "test_device_memory.py::test_capacity_is_real_and_comes_back",
    "orFree": "test_device_memory.py::test_double_free_is_refused",
    "orMallocHost": "test_device_memory.py::"
    "test_only_live_pinned_blocks_can_be_freed",
    "orFreeHost": "test_device_memory.py::"
    "test_only_live_pinned_blocks_can_be_freed",
    "orMemGetInfo": "test_device_memory.py::"
    "test_blocks_are_whole_pages_and_start_as_zeros",
    "orPointerGetAttributes": "test_device_memory.py::"
    "test_interior_pointers_find_their_block",
    "orMemcpy": "test_device_memory.py::test_every_kind_copies",
    "orMemcpyPeer": "test_device_memory.py::"
    "test_peer_copy_checks_whose_the_pointers_are",
    "orMemset": "test_device_memory.py::test_interior_pointers_can_be_copied",
    "orLaunchKernel": "test_device.py::"
    "test_kernel_works_at_a_constant_distance",
    "orDeviceGetDefaultStream": "test_device.py::test_default_streams_differ",
    "orExplainFault": "test_device_fault.py::"
    "test_fault_in_a_block_is_explained",
    "orErrorInvalidValue": "test_device_memory.py::test_null_is_refused",
    "orErrorMemoryAllocation": "test_device_memory.py::"
    "test_capacity_is_real_and_comes_back",
    "orErrorInvalidConfiguration": "test_device.py::"
    "test_malformed_values_are_refused",
    "orErrorForkedProcess": "test_device_fault.py::"
    "test_child_of_a_user_is_refused_by_every_call",
    "orErrorInvalidDevice": "test_device.py::"
    "test_index_out_of_range_changes_nothing",
    "orErrorInvalidDevicePointer": "test_device_memory.py::"
    "test_look_ups_before_the_first_use_find_nothing",
    "orErrorInvalidMemcpyDirection": "test_device_memory.py::"
    "test_wrong_kind_is_refused_and_moves_nothing",
    "orErrorInvalidResourceHandle": "test_device.py::"
    "test_unknown_stream_is_refused_without_a_look_at_it",
    "orErrorLaunchFailure": "test_device.py::"
    "test_failed_kernel_is_a_launch_failure_and_is_released",
}


def device_api() -> str:
    """Every call of the device beside its twin in the CUDA runtime."""
    return table(
        ("Call", "CUDA twin", "What it does", "Test"),
        (
            (
                ", ".join(f"`{name}`" for name in call.names),
                re.sub(r"\bcuda\w+", r"`\g<0>`", call.twin),
                call.meaning,
                f"`{DEVICE_TESTS[call.names[0]]}`",
            )
            for call in device_calls()
        ),
    )


def device_library() -> ctypes.CDLL:
    """The libopenreg.so that the installed package uses."""
    from torch_openreg import _C

    library = ctypes.CDLL(str(Path(_C.__file__).parent / "lib/libopenreg.so"))
    for name in ("orGetErrorName", "orGetErrorString", "orGetErrorDetail"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def device_error_names() -> list[str]:
    """The names of all codes, in order, as the library itself gives them."""
    library = device_library()
    names: list[str] = []
    while (name := library.orGetErrorName(len(names)).decode())[:2] == "or":
        names.append(name)
    return names


def device_errors() -> str:
    """Every error of the device, with its phrase from the library."""
    library = device_library()
    return table(
        ("Code", "Name", "`orGetErrorString`", "Test"),
        (
            (
                str(code),
                f"`{name}`",
                library.orGetErrorString(code).decode(),
                f"`{DEVICE_TESTS[name]}`",
            )
            for code, name in enumerate(device_error_names())
            if code != 0
        ),
    )


# The first pages: how to install, what is linked to what, what works so far.

INSTALL = [
    "python -m pip install --no-build-isolation .",
    "python -m pip install --no-build-isolation -e .",
]


def install() -> str:
    """The commands that backend/tests/test_build_install.py runs."""
    return "\n".join(("```sh", *INSTALL, "```"))


def activate() -> str:
    """The environment that noxfile.py makes, as a reader enters it."""
    noxfile = (ROOT / "noxfile.py").read_text("utf-8")
    found = re.search(r'^SHARED = ROOT / "(.+)" / "(.+)"$', noxfile, re.M)
    assert found, "noxfile.py has no line SHARED = ROOT / ... / ..."
    return f"```sh\nsource {found[1]}/{found[2]}/bin/activate\n```"


class SharedObject(NamedTuple):
    path: Path
    duty: str


def shared_objects() -> list[SharedObject]:
    """The four, from Python down to the device."""
    from torch_openreg import _C

    stub = Path(_C.__file__)
    lib = stub.parent / "lib"
    return [
        SharedObject(stub, "the door that Python opens"),
        SharedObject(
            lib / "libtorch_bindings.so",
            "the runtime's functions as Python objects",
        ),
        SharedObject(
            lib / "libtorch_openreg.so",
            "everything PyTorch needs from a backend",
        ),
        SharedObject(lib / "libopenreg.so", "the emulated accelerator"),
    ]


def needs(path: Path, tag: str = "NEEDED") -> list[str]:
    """What an object's dynamic section says under a tag."""
    said = subprocess.check_output(["readelf", "-dW", path], text=True)
    return re.findall(rf"\({tag}\).*\[(.+)\]", said)


def objects() -> str:
    """The shared objects, each with what the loader must find for it."""
    parts = shared_objects()
    ours = {part.path.name for part in parts}

    def row(part: SharedObject) -> tuple[str, ...]:
        found = needs(part.path)
        theirs = [n for n in found if re.match(r"lib(torch|c10)", n)]
        return (
            f"`{part.path.name.split('.')[0]}.so`",
            part.duty,
            code(n for n in found if n in ours) or "none",
            code(needs(part.path, "RUNPATH")),
            code(n for n in theirs if n not in ours) or "none",
        )

    head = "Object", "Duty", "Needs of ours", "Looks in"
    return table((*head, "Needs of PyTorch"), map(row, parts))


def code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


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
            "`torch.accelerator`": "torch.accelerator.set_device_index(0)",
        },
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
        },
    ),
    Subsystem(
        "Runtime",
        "Hooks and random numbers",
        "hooks",
        {
            "generators": "torch.Generator(device='openreg').manual_seed(1)",
            "state": "torch.openreg.set_rng_state("
            "torch.openreg.get_rng_state())",
        },
    ),
    Subsystem(
        "Runtime",
        "Streams",
        "",
        {
            "the default stream": "torch.accelerator.current_stream()",
            "more streams": "torch.Stream(device='openreg')",
            "`torch.openreg.Stream`": "torch.openreg.Stream",
        },
    ),
    Subsystem(
        "Runtime",
        "Events",
        "",
        {"recording": "torch.Event(device='openreg').record()"},
    ),
    Subsystem(
        "Runtime",
        "Serialization",
        "",
        {
            "`torch.save`, `torch.load`": "import io; f = io.BytesIO(); "
            "torch.save(x, f); f.seek(0); torch.load(f)",
            "`map_location`": "import io; f = io.BytesIO(); torch.save(x, f); "
            "f.seek(0); torch.load(f, map_location='openreg:1')",
            "pickle": "import pickle; pickle.loads(pickle.dumps(x))",
            "sharing between processes": "import torch.multiprocessing as m; "
            "m.reductions.reduce_storage(x.untyped_storage())",
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
        "The minimal set and the fallback",
        "operators",
        {
            "factories, copies, views": "torch.empty(4, device='openreg')"
            ".view(2, 2).copy_(torch.ones(2, 2))[0].cpu()",
            "fallback report": "torch.openreg.fallback",
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
        "Sparse layouts",
        "",
        {
            "COO": "x.view(2, 2).to_sparse() @ x.view(2, 2)",
            "CSR": "x.view(2, 2).to_sparse_csr() @ x.view(2, 2)",
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
        {"Inductor": "torch.openreg.Scheduling"},
    ),
    Subsystem(
        "High-level modules",
        "Distributed",
        "",
        {
            "a backend of `torch.distributed`": "import torch.distributed as d;"
            "d.Backend.default_device_backend_map['openreg']",
        },
    ),
    Subsystem(
        "High-level modules",
        "Exchange",
        "",
        {"DLPack": "x.__dlpack_device__()"},
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
        "csrc/runtime/allocator.cpp",
        "A caching pool with a capacity.",
    ),
    "OpenRegHostAllocator.cpp": (
        "csrc/runtime/host_allocator.cpp",
        "Pinned memory.",
    ),
    "OpenRegGenerator.cpp": (
        "csrc/runtime/generator.cpp",
        "Random operators draw from it.",
    ),
    "OpenRegStream.cpp": ("csrc/runtime/stream.cpp", ""),
    "OpenRegEvent.h": ("csrc/runtime/event.cpp", ""),
    "OpenRegSerialization.cpp": ("csrc/runtime/serialization.cpp", ""),
    "OpenRegMinimal.cpp, native/Minimal.cpp": (
        "csrc/aten/factory.cpp view.cpp copy.cpp",
        "A kernel and its registration share a file.",
    ),
    "OpenRegExtra.cpp, native/Extra.cpp": (
        "csrc/aten/pointwise.cpp boxed.cpp fallback.cpp",
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

    return table(("There", "Here, below `backend`", ""), map(row, REFERENCE))


def generated_methods() -> str:
    """What generate_methods_for_privateuse1_backend has added, and to whom."""
    import torch

    classes = (
        torch.Tensor,
        torch.nn.Module,
        torch.nn.utils.rnn.PackedSequence,
        torch.UntypedStorage,
        torch.TypedStorage,
    )
    meanings = {
        "openreg": "`.openreg(device=None)` copies to the device",
        "is_openreg": "`.is_openreg` tells whether it is there",
    }
    rows = (
        (
            f"`torch.{kind.__qualname__}`"
            if kind.__module__ == "torch"
            else f"`{kind.__module__}.{kind.__qualname__}`",
            *("yes" if hasattr(kind, name) else "no" for name in meanings),
        )
        for kind in classes
    )
    return table(("Class", *meanings.values()), rows)


class AllocatorMethod(NamedTuple):
    name: str  # in c10/core/CachingDeviceAllocator.h
    reached_by: str
    ours: str
    test: str


ALLOCATOR_METHODS = [
    AllocatorMethod(
        "allocate",
        "`torch.UntypedStorage(n, device=...)`",
        "A block of the pool, on the current device.",
        "test_allocator.py::test_a_storage_comes_from_the_pool",
    ),
    AllocatorMethod(
        "initialized",
        "`empty_cache()`, before it does anything",
        "Whether there is a device.",
        "test_memory.py::test_emptying_the_cache_gives_memory_back",
    ),
    AllocatorMethod(
        "emptyCache",
        "`empty_cache()`",
        "Frees the segments without a live block, on all devices.",
        "test_memory.py::test_emptying_the_cache_gives_memory_back",
    ),
    AllocatorMethod(
        "recordStream",
        "`Tensor.record_stream()`",
        "Nothing: there is one stream a device.",
        "test_allocator.py::test_record_stream_is_accepted",
    ),
    AllocatorMethod(
        "getDeviceStats",
        "`memory_stats()`, `memory_allocated()` ...",
        "A copy of the pool's counters.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "resetAccumulatedStats",
        "`reset_accumulated_memory_stats()`",
        "Sets what only grows back to 0.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "resetPeakStats",
        "`reset_peak_memory_stats()`",
        "Sets each peak to the current value.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    AllocatorMethod(
        "getMemoryInfo",
        "`get_memory_info()`",
        "What the device says: free and total bytes.",
        "test_allocator.py::test_memory_info_is_each_devices_own",
    ),
]


def allocator_methods() -> str:
    """What PyTorch asks of a device's allocator, and by which call."""
    return table(
        ("Method", "Reached by", "Here", "Test"),
        (
            (f"`{m.name}`", m.reached_by, m.ours, f"`{m.test}`")
            for m in ALLOCATOR_METHODS
        ),
    )


# The device functions: csrc/runtime/device.h, the bindings, torch.openreg.


class DevicePurpose(NamedTuple):
    name: str
    purpose: str
    test: str


DEVICE_PURPOSES = [
    DevicePurpose(
        "device_count",
        "How many devices there are. It is asked before "
        "anything is used, so it never raises: 0 is an answer, too.",
        "test_runtime.py::test_without_devices_only_their_use_fails",
    ),
    DevicePurpose(
        "current_device",
        "Which device `openreg` means when no index is given. "
        "A number that each thread has for itself.",
        "test_runtime.py::test_each_thread_has_its_own_current_device",
    ),
    DevicePurpose(
        "set_device",
        "For the program's own choice. It checks the index.",
        "test_runtime.py::test_set_device_takes_an_index_a_name_and_a_device",
    ),
    DevicePurpose(
        "exchange_device",
        "For a guard that will go back: sets a device and says "
        "which one was current, in one step.",
        "test_runtime.py::test_exchange_returns_the_device_that_was_current",
    ),
    DevicePurpose(
        "maybe_exchange_device",
        "The same where there may be no device to go to: "
        "a negative index changes nothing.",
        "test_runtime.py::"
        "test_maybe_exchange_with_a_negative_index_changes_nothing",
    ),
]


def device_purposes() -> str:
    """What each of the five device functions is for."""
    return table(
        ("Function", "What it is for", "Test"),
        ((f"`{f.name}`", f.purpose, f"`{f.test}`") for f in DEVICE_PURPOSES),
    )


def python_callers() -> dict[str, list[str]]:
    """Binding -> the public names of torch.openreg whose code calls it."""
    import torch

    callers: dict[str, list[str]] = {}
    tree = ast.parse(Path(torch.openreg.__file__).read_text("utf-8"))
    for node in tree.body:
        name = getattr(node, "name", "_")
        if name.startswith("_"):
            continue
        called = re.findall(r"\b_C\.(_\w+)", ast.unparse(node))
        for binding in dict.fromkeys(called):
            callers.setdefault(binding, []).append(name)
    return callers


class DeviceFunction(NamedTuple):
    name: str
    binding: str  # empty when Python does not see it
    callers: list[str]
    meaning: str


def device_functions() -> list[DeviceFunction]:
    """The rows of device.h, joined to bindings.cpp and to torch.openreg."""
    csrc = ROOT / "backend" / "csrc" / "runtime" / "device.h"
    bindings = ROOT / "backend" / "torch_openreg" / "csrc" / "bindings.cpp"
    bound = re.findall(
        r'm\.def\(\s*"(\w+)",(.*?)\);', bindings.read_text("utf-8"), re.S
    )
    callers = python_callers()
    functions = []
    for comment, name in re.findall(
        r"((?:^// .*\n)+)OPENREG_EXPORT [^;]*?\b(\w+)\([^;]*;",
        csrc.read_text("utf-8"),
        re.M,
    ):
        binding = next(
            (b for b, code in bound if re.search(rf"[&<]{name}\b", code)), ""
        )
        meaning = " ".join(comment.replace("// ", "").split())
        functions.append(
            DeviceFunction(
                name, binding, callers.get(binding, []), first_sentence(meaning)
            )
        )
    return functions


def device_layers() -> str:
    """Each C++ device function with its binding and its Python names."""
    return table(
        ("C++", "Binding", "`torch.openreg`", "What it does"),
        (
            (
                f"`{f.name}`",
                f"`_C.{f.binding}`" if f.binding else "none",
                ", ".join(f"`{name}`" for name in f.callers) or "internal",
                f.meaning,
            )
            for f in device_functions()
        ),
    )


class GuardMethod(NamedTuple):
    name: str
    purpose: str
    test: str  # empty for what is inherited


GUARD_METHODS = [
    GuardMethod(
        "type",
        "The device type that it guards.",
        "test_guard.py::test_its_own_device_type_is_taken",
    ),
    GuardMethod(
        "exchangeDevice",
        "What a guard calls when it is made.",
        "test_guard.py::test_the_accelerator_api_goes_through_the_guard",
    ),
    GuardMethod(
        "getDevice",
        "Which device `openreg` without an index is.",
        "test_guard.py::test_the_accelerator_api_goes_through_the_guard",
    ),
    GuardMethod(
        "setDevice",
        "What a guard calls when it is moved on.",
        "test_guard.py::test_its_own_device_type_is_taken",
    ),
    GuardMethod(
        "uncheckedSetDevice",
        "What a guard's destructor calls; it must not raise.",
        "test_guard.py::test_device_guard_goes_back_after_an_exception",
    ),
    GuardMethod(
        "deviceCount",
        "Autograd starts a thread for each.",
        "test_guard.py::"
        "test_autograd_asks_for_the_number_of_devices_and_sets_theirs",
    ),
    GuardMethod(
        "synchronizeDevice",
        "`torch.accelerator.synchronize()`.",
        "test_runtime.py::test_synchronize_returns_to_the_current_device",
    ),
    GuardMethod(
        "getDeviceCapability",
        "`torch.accelerator.get_device_capability()`.",
        "test_guard.py::test_capability_lists_the_dtypes_that_can_be_copied",
    ),
    GuardMethod(
        "getStream",
        "`torch.accelerator.current_stream()`.",
        "test_guard.py::test_the_current_stream_names_its_device",
    ),
    GuardMethod(
        "getDefaultStream",
        "For C++: the stream that a device has from the start.",
        "",
    ),
    GuardMethod(
        "exchangeStream",
        "`torch.accelerator.set_stream()`.",
        "test_guard.py::test_setting_the_default_stream_sets_its_device",
    ),
    GuardMethod(
        "getStreamNativeHandle",
        "`torch.Stream.native_handle`, for libraries of the vendor.",
        "test_guard.py::test_native_handles_differ",
    ),
    GuardMethod(
        "queryStream",
        "`torch.Stream.query()`.",
        "test_guard.py::test_the_default_stream_is_idle_between_calls",
    ),
    GuardMethod(
        "synchronizeStream",
        "`torch.Stream.synchronize()`.",
        "test_guard.py::test_the_default_stream_is_idle_between_calls",
    ),
    GuardMethod("getStreamFromGlobalPool", "A stream to share.", ""),
    GuardMethod("getNewStream", "`torch.Stream()`.", ""),
    GuardMethod("isStreamCapturing", "Whether a graph is recorded.", ""),
    GuardMethod("record", "`torch.Event.record()`.", ""),
    GuardMethod("block", "`torch.Event.wait()`.", ""),
    GuardMethod("queryEvent", "`torch.Event.query()`.", ""),
    GuardMethod("synchronizeEvent", "`torch.Event.synchronize()`.", ""),
    GuardMethod("elapsedTime", "`torch.Event.elapsed_time()`.", ""),
    GuardMethod("destroyEvent", "The end of an event.", ""),
    GuardMethod("recordDataPtrOnStream", "Memory used by a second stream.", ""),
]


def guard_interface() -> dict[str, bool]:
    """PyTorch's methods of a guard -> whether a backend must write it."""
    import torch

    header = Path(torch.__file__).parent / (
        "include/c10/core/impl/DeviceGuardImplInterface.h"
    )
    found = re.findall(
        r"^  virtual [\w:* ]+?(\w+)\(([^{;]*)[{;]",
        header.read_text("utf-8"),
        re.M,
    )
    return {name: rest.rstrip().endswith("= 0") for name, rest in found}


def guard_overrides() -> list[str]:
    """The methods that our guard overrides."""
    source = ROOT / "backend" / "csrc" / "runtime" / "guard.cpp"
    return re.findall(
        r"(\w+)\([^()]*\) const(?: noexcept)? override",
        source.read_text("utf-8"),
    )


def guard_methods() -> str:
    """Every method of PyTorch's guard interface, ours first."""
    required, ours = guard_interface(), guard_overrides()
    return table(
        ("Method", "Here", "What it is for", "Test"),
        (
            (
                f"`{m.name}`",
                "required"
                if required[m.name]
                else ("yes" if m.name in ours else "next"),
                m.purpose,
                f"`{m.test}`" if m.test else "",
            )
            for m in GUARD_METHODS
        ),
    )


class Hook(NamedTuple):
    method: str
    answers: str
    scenario: str  # who asks, and when (torch 2.13)
    region: str
    test: str  # file::function in backend/tests; reaches it through PyTorch


HOOKS_HIGH = [
    Hook(
        "init",
        "Brings the backend up, or says why it cannot.",
        "Once a process, before the core first needs the device: for a "
        "generator, for pinned memory, from the module's `_lazy_init`.",
        "hooks-init",
        "test_runtime.py::test_without_devices_only_their_use_fails",
    ),
    Hook(
        "hasPrimaryContext",
        "Whether the device with this index is live.",
        "`backward()` notes the current stream of each live device, to wait "
        "for it at the end. `False` for all: it waits for none.",
        "hooks-primary-context",
        "test_hooks.py::"
        "test_has_primary_context_lets_backward_run_on_every_device",
    ),
    Hook(
        "getDefaultGenerator",
        "The generator of a device; -1 means the current one.",
        "`at::manual_seed`, also from TorchScript; "
        "`torch.openreg.default_generators`.",
        "hooks-default-generator",
        "test_hooks.py::test_default_generator_is_what_a_device_draws_from",
    ),
    Hook(
        "getNewGenerator",
        "A generator that nobody else has.",
        '`torch.Generator(device="openreg")`.',
        "hooks-new-generator",
        "test_hooks.py::test_new_generator_is_of_the_device_asked_for",
    ),
    Hook(
        "getDeviceFromPtr",
        "The device whose memory lies at this address.",
        "Memory that comes from outside: `at::from_blob`, a DLPack capsule.",
        "hooks-device-from-ptr",
        "test_hooks.py::test_device_from_ptr_finds_the_device_of_an_address",
    ),
    Hook(
        "getPinnedMemoryAllocator",
        "The allocator of host memory that the device can reach.",
        "`pin_memory=True` in factories, `Tensor.pin_memory()`, "
        "`DataLoader(pin_memory=True)`.",
        "hooks-pinned",
        "test_hooks.py::test_pinned_memory_allocator_and_is_pinned",
    ),
    Hook(
        "isPinnedPtr",
        "Whether host memory at this address is pinned; interior too.",
        "`Tensor.is_pinned()`; `Tensor.pin_memory()`, which copies only what "
        "is not.",
        "hooks-pinned",
        "test_hooks.py::test_pinned_memory_allocator_and_is_pinned",
    ),
]
HOOKS_LOW = [
    Hook(
        "isBuilt",
        "Whether the backend is in this build. Never raises.",
        "Nobody asks a PrivateUse1 backend by itself; device-generic C++ may.",
        "hooks-available",
        "test_hooks.py::test_is_built",
    ),
    Hook(
        "isAvailable",
        "Whether there is a device to use. Never raises, and wakes nothing.",
        "The core's `getAccelerator(checked=true)`.",
        "hooks-available",
        "test_hooks.py::test_is_available_makes_openreg_the_accelerator",
    ),
    Hook(
        "deviceCount",
        "How many devices there are.",
        "`at::manual_seed`, `backward()`.",
        "hooks-device",
        "test_hooks.py::test_device_count",
    ),
    Hook(
        "setCurrentDevice",
        "Makes a device current for this thread.",
        "Device-generic C++ through the hooks.",
        "hooks-device",
        "test_hooks.py::test_set_and_get_current_device",
    ),
    Hook(
        "getCurrentDevice",
        "This thread's current device.",
        "Device-generic C++ through the hooks.",
        "hooks-device",
        "test_hooks.py::test_set_and_get_current_device",
    ),
    Hook(
        "exchangeDevice",
        "Makes a device current; returns the one that was.",
        "Device-generic C++ that means to go back.",
        "hooks-device",
        "test_hooks.py::test_exchange_device",
    ),
    Hook(
        "maybeExchangeDevice",
        "The same; a negative index changes nothing and returns -1.",
        "The way back, when there may have been no device to come from.",
        "hooks-device",
        "test_hooks.py::test_maybe_exchange_device",
    ),
]
HOOKS_OWN = [
    Hook(
        "resizePrivateUse1Bytes",
        "Gives a storage another size and keeps its bytes.",
        "`UntypedStorage.resize_()`.",
        "hooks-resize",
        "test_hooks.py::test_resize_keeps_the_bytes_that_fit",
    ),
]


def hook_table(hooks: list[Hook]) -> str:
    return table(
        ("Method", "What it answers", "Who asks", "Test"),
        (
            (
                f"[`{hook.method}`](#{hook.region})",
                hook.answers,
                hook.scenario,
                f"`{hook.test}`{{.said}}",
            )
            for hook in hooks
        ),
    )


def hooks_high() -> str:
    """The hooks without which everyday programs fail."""
    return hook_table(HOOKS_HIGH)


def hooks_low() -> str:
    """The hooks that PyTorch reaches another way, through the guard."""
    return hook_table(HOOKS_LOW)


def hooks_own() -> str:
    """The hook that only PrivateUse1 has."""
    return hook_table(HOOKS_OWN)


class Tool(NamedTuple):
    """A name in torch._C, and a call that the test makes."""

    name: str
    line: str
    call: str
    answer: str  # with ... for what varies


# `C` is torch._C, `x` a tensor on the device, `add` the operator's handle.
TOOLS = [
    Tool(
        "_dispatch_dump",
        "What was registered for an operator, key by key.",
        "C._dispatch_dump('aten::mm')",
        "'name: aten::mm...PrivateUse1: registered at ...'",
    ),
    Tool(
        "_dispatch_dump_table",
        "What the dispatcher will run for each key, computed from that.",
        "C._dispatch_dump_table('aten::mm')",
        "'Undefined: ...PrivateUse1: registered at ... [kernel]...'",
    ),
    Tool(
        "_dispatch_key_set",
        "The keys of a tensor, as text; the last one goes first.",
        "C._dispatch_key_set(x)",
        "'DispatchKeySet(PrivateUse1, ADInplaceOrView, "
        "AutogradPrivateUse1, AutocastPrivateUse1)'",
    ),
    Tool(
        "_dispatch_keys",
        "The same keys, as a set to ask.",
        "C._dispatch_keys(x).has(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_has_kernel",
        "Whether an operator has a kernel for any key.",
        "C._dispatch_has_kernel('aten::mm')",
        "True",
    ),
    Tool(
        "_dispatch_has_kernel_for_dispatch_key",
        "Whether one was registered for this very key.",
        "C._dispatch_has_kernel_for_dispatch_key('aten::linear', "
        "'PrivateUse1')",
        "False",
    ),
    Tool(
        "_dispatch_has_computed_kernel_for_dispatch_key",
        "Whether one will run for this key, wherever it comes from.",
        "C._dispatch_has_computed_kernel_for_dispatch_key('aten::linear', "
        "'PrivateUse1')",
        "True",
    ),
    Tool(
        "_dispatch_has_kernel_for_any_dispatch_key",
        "Whether one was registered for a key of this set.",
        "C._dispatch_has_kernel_for_any_dispatch_key('aten::mm', "
        "C._dispatch_keys(x))",
        "True",
    ),
    Tool(
        "_dispatch_has_backend_fallback",
        "Whether the key has a fallback for every operator.",
        "C._dispatch_has_backend_fallback(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_kernel_for_dispatch_key_is_fallthrough",
        "Whether the kernel says: as if the key were absent.",
        "C._dispatch_kernel_for_dispatch_key_is_fallthrough("
        "'aten::_copy_from', 'Conjugate')",
        "True",
    ),
    Tool(
        "_dispatch_get_computed_kernel_for_dispatch_key",
        "The kernel itself, to be called past the dispatcher.",
        "C._dispatch_get_computed_kernel_for_dispatch_key("
        "'aten::mm', 'PrivateUse1')",
        "SafeKernelFunction(debug='registered at ...')",
    ),
    Tool(
        "_dispatch_get_registrations_for_dispatch_key",
        "Every operator with a kernel for the key.",
        "'aten::mm' in "
        "C._dispatch_get_registrations_for_dispatch_key('PrivateUse1')",
        "True",
    ),
    Tool(
        "_dispatch_print_registrations_for_dispatch_key",
        "Prints the same list.",
        "C._dispatch_print_registrations_for_dispatch_key('PrivateUse1')",
        "None",
    ),
    Tool(
        "_dispatch_get_all_op_names",
        "Every operator of every library.",
        "'aten::mm' in C._dispatch_get_all_op_names()",
        "True",
    ),
    Tool(
        "_dispatch_find_schema_or_throw",
        "The handle of an operator, from name and overload.",
        "C._dispatch_find_schema_or_throw('aten::add', 'Tensor')",
        "<torch._C._DispatchOperatorHandle object at ...>",
    ),
    Tool(
        "_dispatch_call_boxed",
        "Calls a handle through the boxed form.",
        "C._dispatch_call_boxed(add, x, x).tolist()",
        "[2.0, 2.0]",
    ),
    Tool(
        "_dispatch_find_dangling_impls",
        "Kernels that were registered for operators nobody defined.",
        "C._dispatch_find_dangling_impls()",
        "[]",
    ),
    Tool(
        "_dispatch_check_invariants",
        "Raises if the books of one operator contradict themselves.",
        "C._dispatch_check_invariants('aten::mm')",
        "None",
    ),
    Tool(
        "_dispatch_check_all_invariants",
        "The same for all operators.",
        "C._dispatch_check_all_invariants()",
        "None",
    ),
    Tool(
        "_dispatch_key_for_device",
        "The key of a device type, by its public name.",
        "C._dispatch_key_for_device('openreg')",
        "'PrivateUse1'",
    ),
    Tool(
        "_dispatch_key_name",
        "The name of a key.",
        "C._dispatch_key_name(C.DispatchKey.PrivateUse1)",
        "'PrivateUse1'",
    ),
    Tool(
        "_dispatch_key_parse",
        "The key of a name.",
        "C._dispatch_key_parse('PrivateUse1')",
        "<DispatchKey.PrivateUse1: ...>",
    ),
    Tool(
        "_dispatch_is_alias_key",
        "Whether a key stands for several.",
        "C._dispatch_is_alias_key(C.DispatchKey.Autograd)",
        "True",
    ),
    Tool(
        "_dispatch_is_included_in_alias",
        "Whether the first key is one of those the second stands for.",
        "C._dispatch_is_included_in_alias(C.DispatchKey.PrivateUse1, "
        "C.DispatchKey.CompositeExplicitAutograd)",
        "True",
    ),
    Tool(
        "_dispatch_get_backend_keyset_from_autograd",
        "The backend below an autograd key.",
        "C._dispatch_get_backend_keyset_from_autograd("
        "C.DispatchKey.AutogradPrivateUse1)",
        "DispatchKeySet(PrivateUse1)",
    ),
    Tool(
        "_dispatch_autogradother_backends",
        "Not a function: the keys that share AutogradOther. "
        "PrivateUse1 has its own.",
        "C._dispatch_autogradother_backends.has(C.DispatchKey.PrivateUse1)",
        "False",
    ),
    Tool(
        "_dispatch_keyset_full",
        "The set of all keys.",
        "C._dispatch_keyset_full().has(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_keyset_full_after",
        "The keys below this one: where a redispatch may go.",
        "C._dispatch_keyset_full_after(C.DispatchKey.AutogradPrivateUse1)"
        ".has(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_keyset_to_string",
        "A set of keys as text.",
        "C._dispatch_keyset_to_string(C._dispatch_keys(x))",
        "'DispatchKeySet(PrivateUse1, ...)'",
    ),
    Tool(
        "_dispatch_num_backends",
        "How many backends share the keys with per-backend copies.",
        "C._dispatch_num_backends()",
        "16",
    ),
    Tool(
        "_dispatch_tls_local_include_set",
        "The keys that this thread adds to every call.",
        "C._dispatch_tls_local_include_set()",
        "DispatchKeySet(BackendSelect, ADInplaceOrView)",
    ),
    Tool(
        "_dispatch_tls_local_exclude_set",
        "The keys that this thread takes from every call: "
        "autocast, while it is off.",
        "C._dispatch_tls_local_exclude_set()"
        ".has(C.DispatchKey.AutocastPrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_tls_is_dispatch_key_included",
        "Whether this thread adds the key.",
        "C._dispatch_tls_is_dispatch_key_included('PrivateUse1')",
        "False",
    ),
    Tool(
        "_dispatch_tls_is_dispatch_key_excluded",
        "Whether this thread takes the key away.",
        "C._dispatch_tls_is_dispatch_key_excluded('PrivateUse1')",
        "False",
    ),
    Tool(
        "_dispatch_tls_set_dispatch_key_included",
        "Adds a key to this thread's calls, or stops adding it.",
        "C._dispatch_tls_set_dispatch_key_included('Tracer', False)",
        "None",
    ),
    Tool(
        "_dispatch_tls_set_dispatch_key_excluded",
        "Takes a key from this thread's calls, or gives it back.",
        "C._dispatch_tls_set_dispatch_key_excluded('Tracer', False)",
        "None",
    ),
    Tool(
        "_dispatch_isTensorSubclassLike",
        "Whether a tensor is a subclass or a wrapper, as functorch's are.",
        "C._dispatch_isTensorSubclassLike(x)",
        "False",
    ),
    Tool(
        "_dispatch_library",
        "What torch.library.Library is made of.",
        "C._dispatch_library('IMPL', 'aten', 'PrivateUse1')",
        "<torch._C._DispatchModule object at ...>",
    ),
    Tool(
        "_dispatch_pystub",
        "The Python module that must be imported before an operator, if any.",
        "C._dispatch_pystub('aten::mm', '')",
        "None",
    ),
    Tool(
        "_dispatch_set_report_error_callback",
        "What to call instead of raising when an operator has no kernel.",
        "C._dispatch_set_report_error_callback(thirds, None)",
        "None",
    ),
    Tool(
        "_dispatch_clear_leaked_python_filenames",
        "Frees the file names that Python registrations leave behind.",
        "C._dispatch_clear_leaked_python_filenames()",
        "None",
    ),
]

# Guides of earlier releases list these too.
REMOVED_TOOLS = ["_dispatch_is_main_interpreter"]


def dispatch_tools() -> str:
    """Everything in torch._C that begins with _dispatch_."""
    gone = "Gone (torch 2.13); older guides still list it."
    return table(
        ("Name", "What it tells", "A call", "Its answer"),
        [
            *(
                (
                    f"`{tool.name}`",
                    tool.line,
                    f"`{tool.call.replace(f'C.{tool.name}', 'f')}`",
                    f"`{tool.answer}`",
                )
                for tool in TOOLS
            ),
            *((f"`{name}`", gone, "", "") for name in REMOVED_TOOLS),
        ],
    )


def minimal_rows() -> Any:
    """The rows that backend/tests/test_minimal.py proves."""
    path = ROOT / "backend" / "tests" / "everyday.py"
    spec = importlib.util.spec_from_file_location("everyday", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ROWS


# Where each operator of the minimal set is registered; names of regions.
MINIMAL_LISTINGS = {
    "empty.memory_format": "factory-empty",
    "resize_": "factory-resize",
    "set_": "factory-set",
    "set_.source_Storage": "factory-set",
    "set_.source_Storage_storage_offset": "factory-set",
    "set_.source_Tensor": "factory-register",
    "empty_strided": "factory-register",
    "_copy_from": "copy-from",
    "_copy_from_and_resize": "copy-from",
    "record_stream": "stream-use-record",
    "fallback": "fallback-register",
}


def minimal_set() -> str:
    """The operators that no backend can lack, and what breaks without."""
    return table(
        ("Operator", "What it is for", "Breaks without it", "With"),
        (
            (
                f"[`{row.operator}`]"
                f"(#{MINIMAL_LISTINGS.get(row.operator, 'view-register')})",
                row.purpose,
                row.breaks.replace("_", " "),
                f"`{row.says}`",
            )
            for row in minimal_rows()
        ),
    )


class Policy(NamedTuple):
    name: str
    macro: str  # in ATen/autocast_mode.h
    line: str


POLICIES = [
    Policy(
        "lower_precision_fp",
        "AT_FORALL_LOWER_PRECISION_FP",
        "Casts float tensors to the autocast dtype.",
    ),
    Policy(
        "fp32",
        "AT_FORALL_FP32",
        "Casts float tensors to float32.",
    ),
    Policy(
        "fp32_set_opt_dtype",
        "AT_FORALL_FP32_SET_OPT_DTYPE",
        "Asks the operator for a float32 result, unless the caller named a "
        "dtype.",
    ),
    Policy(
        "fp32_append_dtype",
        "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE",
        "The same for an overload without a dtype: calls the one that has it.",
    ),
    Policy(
        "promote",
        "AT_FORALL_PROMOTE",
        "Casts to the widest dtype among the arguments.",
    ),
]


def policy_operators(policy: Policy) -> list[str]:
    """The operators of a policy's list, read from PyTorch's header."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    header = Path(spec.origin).parent / "include/ATen/autocast_mode.h"
    text = header.read_text("utf-8").replace("\\\n", " ")
    found = re.search(rf"#define {policy.macro}\(_\)(.*)", text)
    assert found, policy.macro
    if "ADD_NS" in found[1]:
        return re.findall(r'"([\w.]+)"', found[1])
    names = re.findall(r"_\((\w+)(?:, (\w+))?\)", found[1])
    return [f"{name}.{over}" if over else name for name, over in names]


def autocast_policies() -> str:
    """Each cast policy with every operator that PyTorch lists for it."""
    return table(
        ("Policy", "What it does", "Operators"),
        (
            (
                f"`{policy.name}`",
                policy.line,
                " ".join(f"`{name}`" for name in policy_operators(policy)),
            )
            for policy in POLICIES
        ),
    )


class Import(NamedTuple):
    program: str
    happens: str
    test: str  # file::function in backend/tests


IMPORTS = [
    Import(
        "`import torch`",
        "torch imports the package, which finds torch all but complete, and "
        "registers the device.",
        "test_autoload.py"
        "::test_import_torch_is_enough_and_later_imports_change_nothing",
    ),
    Import(
        "`import torch_openreg`",
        "The package imports torch; torch comes back for `_autoload`, while "
        "the package is half done; then the package registers the device.",
        "test_autoload.py"
        "::test_the_package_can_be_imported_first_and_by_many_threads",
    ),
    Import(
        "`import torch`, then `import torch_openreg`",
        "The second import finds a finished module and does nothing.",
        "test_autoload.py"
        "::test_import_torch_is_enough_and_later_imports_change_nothing",
    ),
    Import(
        "either, with autoload off",
        "The package registers the device when it is imported, and only then.",
        "test_autoload.py::test_switched_off_it_can_be_imported_by_hand",
    ),
    Import(
        "either, in eight threads at once",
        "Python's import lock lets one thread do it and the others wait.",
        "test_autoload.py"
        "::test_the_package_can_be_imported_first_and_by_many_threads",
    ),
    Import(
        "`import torch` in a spawned child",
        "A fresh interpreter, which loads the backend for itself.",
        "test_autoload.py::test_a_spawned_child_uses_the_devices",
    ),
    Import(
        "nothing, in a child forked after use",
        "The registration is inherited, the right to use the devices is not: "
        "an error says to spawn.",
        "test_runtime.py::test_a_child_forked_after_use_is_told_to_spawn",
    ),
]


def imports() -> str:
    """Who may import what first, and in which process."""
    return table(
        ("The program writes", "What happens", "Test"),
        (
            (row.program, row.happens, f"`{row.test}`{{.said}}")
            for row in IMPORTS
        ),
    )
