"""Where a graph mixes the device with the CPU: numbers in tensors, indices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from torch_openreg.inductor import config

_INDEXES = {"index", "index_put", "_unsafe_index", "_unsafe_index_put"}
_BINARY = {"add", "div", "mul", "sub"}


def _device_of(value: Any) -> torch.device | None:
    tensors = [v for v in tree_leaves(value) if isinstance(v, Tensor)]
    return tensors[0].device if tensors else None


# [py-operands-pass] Moves operands to the device that the kernel runs on.
class MoveOperands(CustomGraphModulePass):
    """Copies to the device what an operator of the device reads elsewhere.

    Eager mode lets a tensor of the CPU without dimensions stand anywhere in an
    elementwise operator, and indices on the CPU index any tensor.
    """

    def __call__(self, module: GraphModule) -> None:
        for node in list(module.graph.nodes):
            device = _device_of(node.meta.get("val"))
            if device is None or device.type != "openreg":
                continue
            for operand in self._to_move(node):
                with module.graph.inserting_before(node):
                    put = torch.ops.prims.device_put.default
                    moved = module.graph.call_function(put, (operand, device))
                moved.meta["val"] = operand.meta["val"].to(device)
                node.replace_input_with(operand, moved)

    def _to_move(self, node: Node) -> list[Node]:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            return []
        name = target._schema.name.removeprefix("aten::")
        is_foreach = name.startswith("_foreach_")
        if not (
            is_foreach or name in _INDEXES or torch.Tag.pointwise in target.tags
        ):
            return []
        # A launch reads a number in the second operand; see compiled.cpp.
        read = name.removeprefix("_foreach_") in _BINARY
        operands = node.args[:1] if read else (node.args, node.kwargs)
        return [
            each
            for each in dict.fromkeys(tree_leaves(operands))
            if isinstance(each, Node)
            and _device_of(each.meta.get("val")) == torch.device("cpu")
        ]

    # [/py-operands-pass]

    def uuid(self) -> str:
        return config.version
