"""All of PyTorch's operator database, compiled by Inductor, beside eager mode.

`nox -s ops -- --compiled` runs this. The same call is made by both on the
device. Where what comes of it differs, the CPU is asked the same: what its own
compiled code gets wrong, too, is PyTorch's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from _operators import (
    ENTRIES,
    UNINITIALIZED,
    Mover,
    by_the_book,
    differences,
    on_host_again,
    samples,
)
from operators_known import Question, unexplained

ENTRIES_OF = "torch.testing._internal.common_methods_invocations"
KINDS = ["compiled", "compiled-dynamic"]
DTYPES = ["float32", "bfloat16", "int64"]
ENDS = ["equal", "wrong", "as on the CPU", "refused by eager mode"]
# How the fault of an answer begins that the CPU gives, too.
CPU_TOO = "the CPU's, too: "

Call = Callable[[Any], Any]


def outcome(call: Call, arguments: Any, device: str) -> list[Any]:
    """The results, the arguments after the call, and how all of them lie."""
    moved = tree_map(Mover(device), arguments)
    torch.manual_seed(7)
    values = tree_leaves((call(moved), moved))
    torch.accelerator.synchronize()
    lie = [
        (x.device.type, x.layout == torch.strided and x.stride())
        for x in values
        if isinstance(x, Tensor)
    ]
    return [*values, lie]


def faults(
    call: Call, arguments: Any, device: str, dynamic: bool, values: bool
) -> list[str] | None:
    """How the compiled call differs; None where eager mode refuses it."""
    try:
        expected = outcome(call, arguments, device)
    except Exception:
        return None
    return list(differing(call, arguments, device, dynamic, values, expected))


def differing(
    call: Call,
    arguments: Any,
    device: str,
    dynamic: bool,
    values: bool,
    expected: list[Any],
) -> Iterator[str]:
    torch._dynamo.reset()
    try:
        got = outcome(torch.compile(call, dynamic=dynamic), arguments, device)
    except Exception as error:
        yield f"error: {type(error).__name__}: {' '.join(str(error).split())}"
        return
    if len(got) != len(expected):
        yield f"results: {len(got)}, not {len(expected)}"
        return
    for index, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        ours, theirs = tree_map_only(Tensor, Tensor.cpu, (ours, theirs))
        for difference in differences(ours, theirs, values):
            yield f"result {index}: {difference}"


def check(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """How many calls were compared, and what differed."""
    op, dynamic = ENTRIES[name], kind == "compiled-dynamic"
    found: list[str] = []
    asked = 0
    # Entries that draw numbers seed themselves, which Dynamo cannot follow.
    seeded = mock.patch.object(
        sys.modules[ENTRIES_OF],
        "wrapper_set_seed",
        lambda op, *args, **kwargs: op(*args, **kwargs),
    )
    call = on_host_again(name, lambda s: op.op(s[0], *s[1], **s[2]))
    settings = torch._inductor.config.patch(
        compile_threads=1,
        # As in eager mode: the numbers drawn, and what is rounded between.
        fallback_random=True,
        emulate_precision_casts=True,
    )
    with seeded, by_the_book(), settings:
        forward = samples(op, getattr(torch, dtype), "forward")
        for sample in islice(forward, count):
            asks = (call, (sample.input, list(sample.args), sample.kwargs))
            values = op.name not in UNINITIALIZED
            ours = faults(*asks, "openreg", dynamic, values)
            if ours is None:
                continue
            asked += 1
            if ours and faults(*asks, "cpu", dynamic, values):
                ours = [CPU_TOO + fault for fault in ours]
            found += ours
    return asked, list(dict.fromkeys(found))


def report(answers: Mapping[Question, Mapping[str, Any]]) -> int:
    """Prints what was found; returns the number of wrong answers."""
    ends: Counter[tuple[str, str]] = Counter()
    for question, answer in answers.items():
        faults = unexplained(question, answer["faults"])
        end = "equal" if answer["calls"] else "refused by eager mode"
        if faults:
            too = all(fault.startswith(CPU_TOO) for fault in faults)
            end = "as on the CPU" if too else "wrong"
        shapes = ", dynamic shapes" * question.kind.endswith("dynamic")
        ends[f"{question.dtype}{shapes}", end] += 1
        for fault in answer["faults"]:
            print(" ".join(question), fault, sep=": ")
    for row in dict.fromkeys(row for row, _ in ends):
        print(row, *(f"{ends[row, end]:5} {end}" for end in ENDS))
    return sum(n for (_, end), n in ends.items() if end == "wrong")
