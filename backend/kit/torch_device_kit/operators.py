"""Which kernels a device's operators reach: traces, fallbacks and tables.

    from torch_device_kit import operators
    with operators.trace() as calls:
        model(x)
    print(operators.fallbacks(calls))

A trace is PyTorch's own execution trace, so it also has what kernels call in
C++, and the backward passes of other threads.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ExecutionTraceObserver
from torch.utils._pytree import tree_leaves

FALLBACK = "backend fallback"


class Call(NamedTuple):
    """A call of an operator with an argument or a result on the device."""

    operator: str  # aten::add.Tensor
    kernel: str  # as `table` has it for the device's key
    device: str  # npu:0
    depth: int  # how many calls of operators it is inside of


@cache
def table(operator: str) -> dict[str, str]:
    """What runs for each dispatch key, by the key's name.

    A kernel is "kernel" if it was registered for the key, "math kernel" or
    "default backend kernel" if it is PyTorch's for all devices, else "backend
    fallback" or "fallthrough". Raises LookupError if there is no such
    operator. The answer is kept, so ask once all is registered.
    """
    try:
        name, _, overload = operator.partition(".")
        torch._C._dispatch_find_schema_or_throw(name, overload)
    except RuntimeError as error:
        raise LookupError(
            f"There is no operator {operator!r}; expected a name such as "
            "'aten::add.Tensor'."
        ) from error
    found = {}
    for line in torch._C._dispatch_dump_table(operator).splitlines():
        key, _, entry = line.partition(": ")
        kind = re.search(r"\[([^]]*)\]$", entry)
        passes = entry.startswith("fallthrough")
        found[key] = "fallthrough" if passes or not kind else kind[1]
    return found


@contextmanager
def trace() -> Iterator[list[Call]]:
    """The calls inside of the `with` block, in order; a list filled at its end.

    What a fallback does to copy is left out. One trace runs at a time.
    """
    calls: list[Call] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        observer = ExecutionTraceObserver().register_callback(str(file))
        observer.start()
        try:
            yield calls
        finally:
            observer.stop()
            observer.unregister_callback()
            calls += read(json.loads(file.read_text())["nodes"])


@contextmanager
def forbid_fallback() -> Iterator[list[Call]]:
    """As `trace`; at its end, a fallback was a NotImplementedError."""
    with trace() as calls:
        yield calls
    if found := fallbacks(calls):
        told = ", ".join(f"{name} ({n}x)" for name, n in found.items())
        raise NotImplementedError(
            f"{calls[0].device.partition(':')[0]} has no kernel for {told}; "
            "the fallback ran them, and forbid_fallback() does not allow it."
        )


def fallbacks(calls: Iterable[Call]) -> Counter[str]:
    """How often each operator ran by the backend's fallback."""
    return Counter(c.operator for c in calls if c.kernel == FALLBACK)


def read(nodes: list[dict[str, Any]]) -> Iterator[Call]:
    """The calls among the nodes of an execution trace."""
    device = torch._C._get_privateuse1_backend_name()
    place = re.compile(rf"{device}:\d+")
    above: dict[int, int] = {}  # operators above the node; none: not shown
    for node in sorted(nodes, key=lambda node: int(node["id"])):
        depth = above.get(node["ctrl_deps"], 0)
        above[node["id"]] = depth
        facts = {fact["name"]: fact["value"] for fact in node["attrs"]}
        operator = str(facts.get("op_schema", "")).partition("(")[0]
        if not operator or depth < 0:
            continue
        values = node["inputs"]["values"], node["outputs"]["values"]
        there = [v for v in tree_leaves(values) if place.fullmatch(str(v))]
        if there:
            kernel = table(operator).get("PrivateUse1", "none")
            above[node["id"]] = -1 if kernel == FALLBACK else depth + 1
            yield Call(operator, kernel, there[0], depth)
