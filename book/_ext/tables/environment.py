"""The tables of book/reference/environment.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


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
        "Which thread runs a kernel, and when: "
        "[the three modes](../chapters/stream.md#when-work-runs).",
        "test_device_stream.py::test_mode_says_which_thread_runs_work",
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
        "an operator's name; `Conjugate`, `Negative`",
        "none",
        "Leaves this operator unregistered, or the fallthrough of copies at "
        "this key, to see what breaks.",
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
        "How the pool splits, rounds and gives back, "
        "and what is kept of pinned memory.",
        "test_environment.py::test_pytorch_alloc_conf_sets_up_the_pool",
    ),
    Variable(
        "CXX",
        "a program, with flags, or `ccache` before it",
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
