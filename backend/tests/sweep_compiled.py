"""All of PyTorch's operator database, compiled by Inductor, beside eager mode.

`nox -s ops -- --compiled` runs this. The same call is made by both on the
device. Where what comes of it differs, the CPU is asked the same: what its own
compiled code gets wrong, too, is PyTorch's.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
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
RECORD = Path(__file__).parents[2] / "book" / "rows" / "compile.json"
KINDS = ["compiled", "compiled-dynamic"]
DTYPES = ["float32", "bfloat16", "int64"]
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
) -> Iterator[str]:
    """How the compiled call differs from the eager one."""
    try:
        expected = outcome(call, arguments, device)
    except Exception:  # what eager mode refuses is another question
        return
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
            asked += 1
            asks = (call, (sample.input, list(sample.args), sample.kwargs))
            values = op.name not in UNINITIALIZED
            ours = list(faults(*asks, "openreg", dynamic, values))
            if ours and list(faults(*asks, "cpu", dynamic, values)):
                ours = [CPU_TOO + fault for fault in ours]
            found += ours
    return asked, list(dict.fromkeys(found))


def count(answers: Mapping[Question, Mapping[str, Any]]) -> dict[str, Any]:
    """How the answers came out, for the book."""
    ends: Counter[tuple[str, str]] = Counter()
    named: dict[str, list[str]] = {"wrong": [], "as on the CPU": []}
    for question, answer in answers.items():
        faults = unexplained(question, answer["faults"])
        end = "equal"
        if faults:
            too = all(fault.startswith(CPU_TOO) for fault in faults)
            end = "as on the CPU" if too else "wrong"
            named[end].append(" ".join(question))
        shapes = " dynamic" * question.kind.endswith("dynamic")
        ends[question.dtype + shapes, end] += 1
    return {
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "counts": {
            row: {end: ends[row, end] for end in ("equal", *named)}
            for row in dict.fromkeys(row for row, _ in ends)
        },
        **{end: sorted(names) for end, names in named.items()},
    }


def report(answers: Mapping[Question, Mapping[str, Any]], keep: bool) -> int:
    """Prints what was found; returns the number of wrong answers."""
    found = count(answers)
    for question, answer in answers.items():
        for fault in answer["faults"]:
            print(" ".join(question), fault, sep=": ")
    for row, ends in found["counts"].items():
        print(f"{row:20}", *(f"{n:5} {end}" for end, n in ends.items()))
    if keep:
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
    return len(found["wrong"])
