"""The tables of book/reference/operators.md."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import islice
from typing import Any, NamedTuple

from tables.common import ROOT, code, table
from tables.dispatcher import REFUSED, is_boxed

READS = ("backend/tests/*.py",)


def test_module(name: str) -> Any:
    """A module of backend/tests, which pytest may have imported already."""
    folder = str(ROOT / "backend" / "tests")
    if folder not in sys.path:  # its modules import each other
        sys.path.append(folder)
    return importlib.import_module(name)


# What runs for an operator of ATen: a letter, and what it means.
LETTERS = {
    "n": "a native kernel of the backend",
    "a": "the boxed kernel on aliases",
    "c": "PyTorch's composition of other operators",
    "f": "the copying fallback",
    "x": "nothing: the CPU has no kernel either, or only the host may run it",
}
# From the one that says most of an entry to the one that says least.
WEIGHT = "xfanc"
KEYS = {
    "torch.sparse_coo": "SparsePrivateUse1",
    "torch.strided": "PrivateUse1",
}


def tier(name: str, key: str = "PrivateUse1") -> str:
    """The letter of an operator, as the dispatcher has it now."""
    if name.startswith(REFUSED):
        return "x"
    if torch_c()._dispatch_has_kernel_for_dispatch_key(name, key):
        return "a" if is_boxed(name, key) else "n"
    dump = torch_c()._dispatch_dump_table(name)
    line = re.search(rf"^{key}: (.*)$", dump, re.M)
    if line is not None and "backend fallback" not in line[1]:
        return "c"
    on_host = torch_c()._dispatch_has_computed_kernel_for_dispatch_key
    return "f" if on_host(name, "CPU") else "x"


def torch_c() -> Any:
    import torch

    return torch._C


class Row(NamedTuple):
    entry: str
    operators: list[str]  # those that ran on the device, in order
    tier: str  # a letter, or nothing where nothing ran
    dtypes: list[str]  # those that the CPU has it in


def watch(call: Callable[[], Any]) -> dict[str, str]:
    """The operators that `call` runs on the device, each with its key."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen: dict[str, str] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves((args, kwargs, result)):
                if isinstance(leaf, torch.Tensor) and leaf.is_openreg:  # type: ignore[attr-defined]
                    key = KEYS.get(str(leaf.layout), "SparseCsrPrivateUse1")
                    name, overload = func._schema.name, func._overloadname
                    if overload != "default":
                        name += f".{overload}"
                    seen.setdefault(name, key)
            return result

    with Watch():
        call()
    return seen


def called(entry: str, dtype: Any) -> dict[str, str]:
    """The operators of the first sample of an entry that runs any."""
    from torch.utils._pytree import tree_map

    operators = test_module("_operators")
    op = operators.ENTRIES[entry]
    with operators.by_the_book():
        for sample in islice(operators.samples(op, dtype, "forward"), 12):
            ((call, arguments),) = operators.calls(op, "forward", sample)
            moved = tree_map(operators.Mover("openreg"), arguments)
            run = functools.partial(operators.on_host_again(entry, call), moved)
            try:
                if ran := watch(run):
                    return ran
            except (AssertionError, RuntimeError):
                continue  # refused, as test_operator_database.py compares
    return {}


def look(entry: str) -> Row | None:
    """A row, or nothing for an entry that has none of the table's dtypes."""
    import torch

    operators = test_module("_operators")
    has = operators.ENTRIES[entry].dtypes
    dtypes = [d for d in operators.DTYPES if getattr(torch, d) in has]
    if not dtypes:
        return None
    ran = called(entry, getattr(torch, dtypes[0]))
    letters = {tier(name, key) for name, key in ran.items()}
    letter = next((t for t in WEIGHT if t in letters), "")
    names = [name.removeprefix("aten::") for name in ran]
    return Row(entry, names, letter, dtypes)


FAMILIES = {
    "nn": r"nn\.functional\.",
    "linear": r"(linalg|fft|signal|sparse|masked)\.",
    "special": r"special\.|_refs",
}


@functools.cache
def rows(family: str) -> list[Row]:
    """The rows of a family; "other" has what no family has."""
    found = []
    for entry in sorted(test_module("_operators").ENTRIES):
        mine = next((f for f in FAMILIES if re.match(FAMILIES[f], entry)), None)
        if (mine or "other") == family and (row := look(entry)):
            found.append(row)
    return found


def show(row: Row) -> tuple[str, ...]:
    dtypes = test_module("_operators").DTYPES
    letters = [(row.tier or "h") if d in row.dtypes else "·" for d in dtypes]
    more = len(row.operators) - 3
    names = " ".join(f"`{name}`" for name in row.operators[:3])
    known = any(fnmatch(row.entry, line.operator) for line in known_lines())
    return (
        f"`{row.entry}`" + " *" * known,
        f"`{''.join(letters)}`",
        names + f" and {more} more" * (more > 0),
    )


def known_lines() -> list[Any]:
    return test_module("operators_known").KNOWN


def family_table(family: str) -> str:
    return table(("Entry", "Dtypes", "Runs"), map(show, rows(family)))


def entries_nn() -> str:
    return family_table("nn")


def entries_linear() -> str:
    return family_table("linear")


def entries_special() -> str:
    return family_table("special")


def entries_other() -> str:
    return family_table("other")


def operator_tiers() -> str:
    """How many operators of ATen run by which way."""
    import torch

    names = torch._C._dispatch_get_all_op_names()
    count = dict.fromkeys(LETTERS, 0)
    for name in names:
        if name.startswith("aten::"):
            count[tier(name)] += 1
    return table(
        ("Letter", "What runs", "Operators of ATen"),
        ((t, LETTERS[t], f"{count[t]}") for t in LETTERS),
    )


def known_differences() -> str:
    """The list of backend/tests/operators_known.py, one row a reason."""
    entries: dict[tuple[str, ...], list[str]] = {}
    for line in known_lines():
        rest = (line.kinds, line.dtypes, line.says, line.reason)
        entries.setdefault(rest, []).append(line.operator)
    return table(
        ("Entry", "Asked", "Dtypes", "Differs", "PyTorch's limit"),
        ((code(names), *rest) for rest, names in entries.items()),
    )
