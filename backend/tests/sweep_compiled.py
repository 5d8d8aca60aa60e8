"""All of PyTorch's operator database, compiled by Inductor, beside eager mode.

`nox -s ops -- --compiled` runs this. The same call is made by both on the
device. Where what comes of it differs, the CPU is asked the same: a difference
that its own compiled code has, too, is PyTorch's.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from torch_device_kit.conformance import known
from torch_device_kit.conformance.compare import Mover, differences, impersonal
from torch_device_kit.conformance.database import (
    ENTRIES,
    UNINITIALIZED,
    applies,
    by_the_book,
    on_host_again,
    samples,
)
from torch_device_kit.conformance.known import Question

ENTRIES_OF = "torch.testing._internal.common_methods_invocations"
ROWS = Path(__file__).parents[2] / "book" / "rows"
RECORD = ROWS / "compile.json"
# What is not as on the CPU or, compiled, as in eager mode.
DECLARED = known.read(ROWS / "operators_known.toml")
KINDS = ["compiled", "compiled-dynamic"]
DTYPES = ["float32", "bfloat16", "int64"]
ENDS = ["equal", "wrong", "listed", "as on the CPU", "refused by eager mode"]
# How the fault of an answer begins that the CPU gives, too.
CPU_TOO = "the CPU's, too: "
TOGETHER = 12  # entries of the database that make one graph

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


def excused(ours: list[str], theirs: list[str]) -> Iterator[str]:
    """Our faults; those that the CPU has word for word are said to be so."""
    host = {comparable(fault) for fault in theirs}
    for fault in ours:
        yield CPU_TOO * (comparable(fault) in host) + fault


def comparable(fault: str) -> str:
    """A fault without the names of files and of devices.

    A fake of the CPU does not say where it is.
    """
    fault = impersonal(fault).replace("device='cpu', ", "")
    return re.sub(r"\S*/\S+", "...", fault)


@contextlib.contextmanager
def as_in_eager_mode() -> Iterator[None]:
    """Numbers are drawn, and results rounded in between, as without Inductor.

    Entries that draw numbers seed themselves, which Dynamo cannot follow.
    """
    seeded = mock.patch.object(
        sys.modules[ENTRIES_OF],
        "wrapper_set_seed",
        lambda op, *args, **kwargs: op(*args, **kwargs),
    )
    settings = torch._inductor.config.patch(
        compile_threads=1, fallback_random=True, emulate_precision_casts=True
    )
    with seeded, by_the_book(), settings:
        yield


def asks(name: str, dtype: str) -> Iterator[tuple[Call, Any]]:
    """The calls of an entry, each with its arguments."""
    op = ENTRIES[name]
    call = on_host_again(name, lambda s: op.op(s[0], *s[1], **s[2]))
    for sample in samples(op, getattr(torch, dtype), "forward"):
        yield call, (sample.input, list(sample.args), sample.kwargs)


def check(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """How many calls were compared, and what differed."""
    names = list(ENTRIES)
    first = names.index(name) // TOGETHER * TOGETHER
    group = tuple(
        other
        for other in names[first : first + TOGETHER]
        if applies(ENTRIES[other], getattr(torch, dtype), kind)
        and not DECLARED.corrupts(Question(other, dtype, kind))
    )
    if count > 1 or name not in group:
        return alone(name, dtype, kind, count)
    return together(group, dtype, kind)[name]


@cache
def together(
    names: tuple[str, ...], dtype: str, kind: str
) -> dict[str, tuple[int, list[str]]]:
    """What `check` says of entries, by their first calls.

    One graph of all takes a quarter of the time. Where it does not give what
    eager mode does, each half is one, and in the end each call. A call that
    ends the process does so for its neighbours, too: ask with `--samples 2`,
    which compiles each by itself.
    """
    if len(names) < 2:
        return {name: alone(name, dtype, kind, 1) for name in names}
    if agree(names, dtype, kind):
        return {name: (1, []) for name in names}
    half = len(names) // 2
    parts = names[:half], names[half:]
    first, second = (together(part, dtype, kind) for part in parts)
    return first | second


def alone(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    dynamic = kind == "compiled-dynamic"
    values = ENTRIES[name].name not in UNINITIALIZED
    found: list[str] = []
    asked = 0
    with as_in_eager_mode():
        for call in islice(asks(name, dtype), count):
            ours = faults(*call, "openreg", dynamic, values)
            if ours is None:
                continue
            asked += 1
            if ours:
                theirs = faults(*call, "cpu", dynamic, values) or []
                ours = [*excused(ours, theirs)]
            found += ours
    return asked, list(dict.fromkeys(found))


def agree(names: Sequence[str], dtype: str, kind: str) -> bool:
    """Whether the first calls of entries, as one graph, give what eager does.

    Also false where they do not make one graph, or an entry has no call.
    """
    if any(ENTRIES[name].name in UNINITIALIZED for name in names):
        return False
    counters.clear()
    with as_in_eager_mode():
        first = [call for n in names for call in islice(asks(n, dtype), 1)]
        if len(first) < len(names):
            return False
        calls, arguments = zip(*first, strict=True)
        found = faults(
            lambda given: [
                call(x) for call, x in zip(calls, given, strict=True)
            ],
            list(arguments),
            *("openreg", kind == "compiled-dynamic", True),
        )
    one_graph = counters["stats"]["unique_graphs"] == 1
    return found == [] and one_graph and not counters["graph_break"]


def end_of(question: Question, answer: Mapping[str, Any]) -> str:
    if not answer["faults"]:
        return "equal" if answer["calls"] else "refused by eager mode"
    left = DECLARED.unexplained(question, answer["faults"])
    if not all(fault.startswith(CPU_TOO) for fault in left):
        return "wrong"
    return "as on the CPU" if left else "listed"


def count(answers: Mapping[Question, Mapping[str, Any]]) -> dict[str, Any]:
    """How the answers came out, for the book."""
    ends: Counter[tuple[str, str]] = Counter()
    differ: dict[str, list[str]] = {end: [] for end in ENDS[1:4]}
    for question, answer in answers.items():
        end = end_of(question, answer)
        if end in differ:
            differ[end].append(" ".join(question))
        shapes = ", dynamic shapes" * question.kind.endswith("dynamic")
        ends[f"op_db, {question.dtype}{shapes}", end] += 1
    return {
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "counts": {
            row: {end: ends[row, end] for end in ENDS}
            for row in dict.fromkeys(row for row, _ in ends)
        },
        "failed": sorted(differ.pop("wrong")),
        **{end: sorted(names) for end, names in differ.items()},
    }


def report(answers: Mapping[Question, Mapping[str, Any]]) -> int:
    """Prints what was found; returns the number of wrong answers."""
    found = count(answers)
    for question, answer in answers.items():
        for fault in answer["faults"]:
            print(" ".join(question), fault, sep=": ")
    for row, ends in found["counts"].items():
        print(row, *(f"{ends[end]:5} {end}" for end in ENDS))
    return len(found["failed"])


def record(answers: Mapping[Question, Mapping[str, Any]]) -> None:
    """Keeps the counts of all answers that a build has given."""
    ours = {q: answers[q] for q in sorted(answers) if q.kind in KINDS}
    RECORD.write_text(json.dumps(count(ours), indent=1) + "\n")
