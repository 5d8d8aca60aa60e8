"""The tables of book/reference/operators.md."""

import functools
import random
import re
import warnings
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rows import rows
from tables.common import table
from tables.dispatcher import REFUSED, is_boxed

READS = ("book/rows/operators_known.toml",)
DTYPES = ["float32", "float64", "bfloat16", "int64", "bool", "complex64"]

# What runs for an operator of ATen: a word, and what it means.
TIERS = {
    "native": "a native kernel of the backend",
    "alias": "the boxed kernel on aliases",
    "composite": "PyTorch's composition of other operators",
    "fallback": "the copying fallback",
    "none": "nothing: the CPU has no kernel, or only the host may run it",
}
# From the one that says most of an entry to the one that says least.
WEIGHT = "none", "fallback", "alias", "native", "composite"
KEYS = {
    "torch.sparse_coo": "SparsePrivateUse1",
    "torch.strided": "PrivateUse1",
}


def tier(name: str, key: str = "PrivateUse1") -> str:
    """What runs for an operator, as the dispatcher has it now."""
    if name.startswith(REFUSED):
        return "none"
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
        return "alias" if is_boxed(name, key) else "native"
    dump = torch._C._dispatch_dump_table(name)
    line = re.search(rf"^{key}: (.*)$", dump, re.M)
    if line is not None and "backend fallback" not in line[1]:
        return "composite"
    on_host = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return "fallback" if on_host(name, "CPU") else "none"


class Row(NamedTuple):
    entry: str
    operators: list[str]  # those that ran on the device, in order
    tier: str  # or nothing, where nothing ran on the device
    dtypes: list[str]  # those that the CPU has it in


def watch(call: Callable[[], Any]) -> dict[str, str]:
    """The operators that `call` runs on the device, each with its key."""
    seen: dict[str, str] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves((args, kwargs, result)):
                if isinstance(leaf, torch.Tensor) and leaf.is_openreg:  # type: ignore[attr-defined]
                    key = KEYS.get(str(leaf.layout), "SparseCsrPrivateUse1")
                    name, overload = func._schema.name, func._overloadname
                    if overload != "default":
                        name += f".{overload}"
                    seen.setdefault(name, key)
            return result

    with Watch():  # type: ignore[no-untyped-call]
        call()
    return seen


@functools.cache
def entries() -> dict[str, Any]:
    """PyTorch's operator database, by the names of its entries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # hypothesis is optional
        from torch.testing._internal.common_methods_invocations import op_db
    # That import forbids to set torch.backends.* for the rest of the process.
    torch.backends.__allow_nonbracketed_mutation_flag = True
    return {f"{x.name}.{x.variant_test_name}".rstrip("."): x for x in op_db}


def called(entry: str, dtype: Any) -> dict[str, str]:
    """The operators of the first sample of an entry that runs any."""
    op = entries()[entry]
    torch.manual_seed(0)
    random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs_func(op, "openreg", dtype, False)
        for sample in islice(samples, 12):
            run = functools.partial(op, sample.input, *sample.args)
            try:
                if ran := watch(functools.partial(run, **sample.kwargs)):
                    return ran
            except (AssertionError, RuntimeError):
                continue  # refused, as test_operator_database.py compares
    return {}


def look(entry: str) -> Row | None:
    """A row, or nothing for an entry that has none of the table's dtypes."""
    has = entries()[entry].dtypes
    dtypes = [d for d in DTYPES if getattr(torch, d) in has]
    if not dtypes:
        return None
    ran = called(entry, getattr(torch, dtypes[0]))
    tiers = {tier(name, key) for name, key in ran.items()}
    most = next((t for t in WEIGHT if t in tiers), "")
    names = [name.removeprefix("aten::") for name in ran]
    return Row(entry, names, most, dtypes)


FAMILIES = {
    "nn": r"nn\.functional\.",
    "linear": r"(linalg|fft|signal|sparse|masked)\.",
    "special": r"special\.|_refs",
}


@functools.cache
def family(name: str) -> list[Row]:
    """The rows of a family; "other" has what no family has."""
    found = []
    for entry in sorted(entries()):
        mine = next((f for f in FAMILIES if re.match(FAMILIES[f], entry)), None)
        if (mine or "other") == name and (row := look(entry)):
            found.append(row)
    return found


def show(row: Row) -> tuple[str, ...]:
    lacks = [dtype for dtype in DTYPES if dtype not in row.dtypes]
    dtypes = "all but " + ", ".join(lacks) if lacks else "all"
    more = len(row.operators) - 3
    names = " ".join(f"`{name}`" for name in row.operators[:3])
    known = rows("operators_known.known")
    listed = any(fnmatch(row.entry, n) for line in known for n in line.names)
    return (
        f"`{row.entry}`" + " *" * listed,
        row.tier or "host",
        dtypes if len(lacks) < 3 else ", ".join(row.dtypes),
        names + f" and {more} more" * (more > 0),
    )


def database(name: str) -> str:
    """What runs for each entry of a family."""
    head = ("Entry", "Kernel", "Dtypes", "Operators")
    return table(head, map(show, family(name)))


def operator_tiers() -> str:
    """How many operators of ATen run by which way."""
    names = torch._C._dispatch_get_all_op_names()
    count = dict.fromkeys(TIERS, 0)
    for name in names:
        if name.startswith("aten::"):
            count[tier(name)] += 1
    return table(
        ("Kernel", "What runs", "Operators of ATen"),
        ((t, TIERS[t], f"{count[t]}") for t in TIERS),
    )
