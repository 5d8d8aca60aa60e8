"""A compiler of one's own for torch.compile, without Inductor, on any device.

It changes one thing of a graph: a result is written where an operand lies that
nobody needs any more, so a chain of operators allocates once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func


# [py-own-compiler-take] Which operands a call may overwrite.
def is_pointwise(node: fx.Node) -> bool:
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.pointwise in target.tags
        and not target._schema.is_mutable
    )


def looks(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.shape, value.stride(), value.dtype, value.device


def can_take(operand: fx.Node, node: fx.Node) -> bool:
    """Whether `node`, the last to read `operand`, may write where it lies.

    An operator on elements makes memory of its own, and other users than such
    operators might keep a view of it.
    """
    return (
        is_pointwise(operand)
        and "out" in node.target.overloadpacket.overloads()
        and all(map(is_pointwise, operand.users))
        and looks(operand) == looks(node)
    )


# [/py-own-compiler-take]


# [py-own-compiler-compile] Turns a graph into the function called instead.
def compile_graph(
    module: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    nodes = list(module.graph.nodes)
    last = {used: node for node in nodes for used in node.all_input_nodes}
    taken = {}
    for node in filter(is_pointwise, nodes):
        for operand in node.all_input_nodes:
            if last[operand] is node and can_take(operand, node):
                taken[node] = operand
                break
    for node, operand in taken.items():
        node.target = node.target.overloadpacket.out
        node.kwargs = {**node.kwargs, "out": operand}
    module.recompile()
    return make_boxed_func(module.forward)


register_backend(aot_autograd(fw_compiler=compile_graph), name="own")
# [/py-own-compiler-compile]


# [py-own-compiler-use] The same values, and fewer allocations.
def chain(x: torch.Tensor) -> torch.Tensor:
    y = (x.sin() * 2 + x).relu() - 1
    return (y * y + x).abs().sqrt() * 3


def allocations(call: Callable[[torch.Tensor], object], x: torch.Tensor) -> int:
    name = "allocation.all.allocated"
    before = torch.accelerator.memory_stats()[name]
    call(x)
    return int(torch.accelerator.memory_stats()[name] - before)


def main() -> None:
    x = torch.rand(1000, device=torch.accelerator.current_accelerator())
    compiled = torch.compile(chain, backend="own", fullgraph=True)
    print(compiled(x).equal(chain(x)))
    print(allocations(chain, x), "->", allocations(compiled, x))


# [/py-own-compiler-use]


if __name__ == "__main__":
    main()

# expect: ok
