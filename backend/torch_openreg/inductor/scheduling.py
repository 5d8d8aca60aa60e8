"""What a compiled graph's kernels are made of: C++ for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor import config
from torch._inductor.codegen.common import KernelArgs
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.utils import Placeholder, get_fused_kernel_name
from torch._inductor.virtualized import V

# The function in each compiled kernel that the device launches.
ENTRY = "openreg_kernel"


# [py-scheduling-entry] A launch passes its arguments in one array of words.
def _write_entry(types: Sequence[str]) -> str:
    """Returns C++ that calls `kernel` with arguments of `types`."""

    def read(index: int, type_: str) -> str:
        if type_.endswith("*"):
            return f"reinterpret_cast<{type_}>(words[{index}])"
        if "float" in type_ or "double" in type_:
            return f"reinterpret_cast<const double&>(words[{index}])"
        return f"words[{index}]"

    arguments = ",\n      ".join(map(read, range(len(types)), types))
    return (
        f'extern "C" void {ENTRY}(const int64_t* words) {{\n'
        f"  kernel(\n      {arguments});\n}}\n"
    )


# [/py-scheduling-entry]


# [py-scheduling-cpu] Has Inductor write the code that it writes for a CPU.
def _as_cpu() -> Any:
    """Inductor takes a device that it does not know for one with Triton."""
    return config.patch(cuda_backend="cpp")


class _Loops(tuple[Any, ...]):
    """The sizes of nested loops, where Triton has one number of elements.

    Inductor multiplies two of those to see whether the loops of one kernel can
    be written as another's. No loop has the number that it gets here.
    """

    def __mul__(self, other: object) -> int:  # type: ignore[override]
        return -1


class Scheduling(CppScheduling):
    def group_fn(self, sizes: Any) -> tuple[tuple[Any, ...], ...]:
        return tuple(map(_Loops, super().group_fn(sizes)))

    def codegen_node(self, node: Any) -> None:
        with _as_cpu():
            super().codegen_node(node)

    def codegen_outer_loop_node(self, node: Any) -> None:
        with _as_cpu():
            super().codegen_outer_loop_node(node)

    # [/py-scheduling-cpu]

    # [py-scheduling-define] Gives each kernel a name in the graph's Python.
    def define_kernel(
        self, src_code: str, nodes: Any, kernel_args: KernelArgs | None = None
    ) -> str:
        wrapper = V.graph.wrapper_code
        args = kernel_args or self.kernel_group.args
        source = src_code.replace(str(Placeholder.KERNEL_NAME), "kernel")
        source = source.replace("#pragma CMT", "//")
        source += _write_entry(args.cpp_argdefs()[2])
        key = source
        if key not in wrapper.src_to_kernel:
            fused = get_fused_kernel_name(nodes, config.cpp.descriptive_names)
            name = f"openreg_{fused}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[key] = name
            source = source.replace(str(Placeholder.DESCRIPTIVE_NAME), name)
            call = f"compile_kernel(async_compile, {name!r}, r'''\n{source}''')"
            wrapper.define_kernel(name, call, gpu=False)
        return wrapper.src_to_kernel[key]

    # [/py-scheduling-define]
