"""The Python around a compiled graph's kernels, where ours differs."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch._inductor.codegen import wrapper
from torch._inductor.codegen.common import DeviceOpOverrides
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.stream_utils import get_stream_name
from torch._inductor.virtualized import V

# A line in which torch.empty_strided allocates on whatever device is current.
_ALLOCATION = re.compile(
    r"= empty_strided\((.*)device='openreg', dtype=([\w.]+)\)"
)


# [py-wrapper-overrides] Lines of Python that Inductor writes for any device.
class OpOverrides(DeviceOpOverrides):
    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_openreg._C import _current_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"torch.openreg.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.openreg.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.openreg.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.openreg.current_stream()"


# [/py-wrapper-overrides]


# [py-wrapper-create] A class for graphs, and one for graphs within graphs.
class PythonWrapperCodegen(wrapper.PythonWrapperCodegen):
    has_streams = False

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: wrapper.PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> wrapper.PythonWrapperCodegen:
        if is_subgraph:
            assert subgraph_name is not None
            assert parent_wrapper is not None
            return _Subgraph(
                subgraph_name, parent_wrapper, partition_signatures
            )
        return PythonWrapperCodegen()

    def write_header(self) -> None:
        super().write_header()
        self.imports.splice("""
            from torch._dynamo.graph_bytecode_inputs import (
                get_external_object_by_index,
            )
            from torch_openreg._C import _empty_strided
            from torch_openreg.inductor.kernels import compile_kernel
        """)

    # [/py-wrapper-create]

    # [py-wrapper-lines] Lines that Inductor writes only for devices it knows.
    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: list[str], **_: Any
    ) -> None:
        # The kernel knows its device, and takes the current stream.
        self.writeline(self.wrap_kernel_call(kernel_name, call_args))

    def make_allocation(
        self, name: str, device: torch.device, *args: Any, **kwargs: Any
    ) -> str:
        line: str = super().make_allocation(name, device, *args, **kwargs)
        return _ALLOCATION.sub(rf"= _empty_strided(\1\2, {device.index})", line)

    def codegen_cuda_stream_enter(self, stream_idx: int) -> Any:
        if not self.has_streams:  # which a device guard would have named
            self.has_streams = True
            self.writeline(
                f"{get_stream_name(0)} = {V.graph.device_ops.current_stream()}"
            )
            streams = V.graph.scheduler.stream_idx_to_user_obj_idx
            for index, user in streams.items():
                name = get_stream_name(index)
                self.writeline(f"{name} = get_external_object_by_index({user})")
        return super().codegen_cuda_stream_enter(stream_idx)

    # [/py-wrapper-lines]


class _Subgraph(wrapper.SubgraphPythonWrapperCodegen, PythonWrapperCodegen):
    """A branch of torch.cond, say, in the file of its graph."""


# [py-wrapper-refuse] A graph without Python needs shims, so it is refused.
class CppWrapperCodegen(CppWrapperCpu):
    @staticmethod
    def create(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "openreg: a compiled graph here is Python. AOTInductor and "
            "cpp_wrapper write C++ that calls shims, which PyTorch has for "
            "its own devices only. Use torch.export and torch.compile."
        )


# [/py-wrapper-refuse]
