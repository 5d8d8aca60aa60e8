"""The tables of book/chapters/dispatcher.md."""

import inspect
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import _C

from rows import Row, load, rows
from tables.common import code, drawing, of_rows, table

READS = ("book/rows/operators.toml",)


def dispatch_tools() -> str:
    """Everything in torch._C that begins with _dispatch_."""
    gone = "Gone (torch 2.13); older guides still list it."
    removed = load("dispatcher")["removed_tools"]
    shown = of_rows(
        "dispatcher.tools",
        short=lambda tool: f"`{tool.call.replace(f'C.{tool.name}', 'f')}`",
    )
    return "\n".join([shown, *(f"| `{x}` | {gone} |  |  |" for x in removed)])


def chosen(operator: str, key: str) -> str:
    """What the dispatcher runs for a key: "kernel", "math kernel" ... or ""."""
    return line_of(operator, key).rpartition(" [")[2].strip("]")


def line_of(operator: str, key: str) -> str:
    """What the dispatcher's table of an operator says of a key, or ""."""
    dump = f"\n{_C._dispatch_dump_table(operator)}"
    return dump.partition(f"\n{key}: ")[2].partition("\n")[0]


def registered(operator: str) -> set[str]:
    """The keys that kernels were registered under, alias keys among them."""
    dump = _C._dispatch_dump(operator)
    return set(re.findall(r"^(\w+)(?:\[alias\])?: ", dump, re.MULTILINE))


# Operators whose kernel for the device only refuses.
REFUSED = "aten::fbgemm_"


def is_boxed(operator: str, key: str) -> bool:
    """Whether its kernel for a key is a boxed function, without signature."""
    dump = _C._dispatch_dump(operator)
    line = re.search(f"^{key}: .*$", dump, re.MULTILINE)
    return line is not None and ":: (none)" in line[0]


COMPOSITES = (
    "CompositeExplicitAutogradNonFunctional",
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
)


def dispatch_paths() -> str:
    """What runs for some operators, as the dispatcher's table has it now."""
    data = load("dispatcher")
    keys = [f"`{key}`" for key in data["path_keys"]]
    body = (
        (
            f"`{operator.removeprefix('aten::')}`",
            code(key for key in COMPOSITES if key in registered(operator)),
            *(chosen(operator, key) for key in data["path_keys"]),
        )
        for operator in data["path_operators"]
    )
    head = "Operator", "PyTorch's kernel for all backends"
    return table((*head, *keys), body)


@cache
def aten_operators() -> dict[str, Any]:
    """Every operator of ATen, name -> handle."""
    names = (
        name.removeprefix("aten::").partition(".")
        for name in _C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    )
    handles = (
        getattr(getattr(torch.ops.aten, base), overload or "default")
        for base, _, overload in names
    )
    return {handle.name(): handle for handle in handles}


def with_tag(name: str) -> set[str]:
    tag = getattr(torch.Tag, name)
    return {n for n, op in aten_operators().items() if tag in op.tags}


def with_choice(key: str, *choices: str) -> set[str]:
    return {n for n in aten_operators() if chosen(n, key) in choices}


def operator_groups() -> dict[str, set[str]]:
    """The operators of each thing that is counted."""
    found = {}
    for row in rows("dispatcher.groups"):
        if row.tag:
            found[row.name] = with_tag(row.tag)
        elif row.asked.startswith("CPU: "):
            found[row.name] = with_choice("CPU", row.cpu)
        else:
            found[row.name] = {
                name
                for name, operator in aten_operators().items()
                if row.name != "views" or operator.is_view
            }
    return found


def operator_set() -> str:
    """How many operators there are, counted while the page is printed."""
    groups, core = operator_groups(), with_tag("core")
    return of_rows(
        "dispatcher.groups",
        number=lambda row: str(len(groups[row.name])),
        core=lambda row: str(len(groups[row.name] & core)),
    )


def order_of_work() -> dict[str, set[str]]:
    """The operators of each step."""
    cpu = with_choice("CPU", "kernel")
    core = with_tag("core") & cpu
    minimal = {
        f"aten::{row.operator}"
        for row in rows("operators.minimal")
        if row.operator != "fallback"
    }
    composite = {
        name
        for name in cpu | with_choice("PrivateUse1", "kernel")
        if registered(name) & set(COMPOSITES)
    }
    forms = {name for name in composite if COMPOSITES[0] in registered(name)}
    asked = {
        name
        for name in aten_operators()
        if re.search("_overrideable|^aten::_thnn_fused_", name)
        and not name.endswith("out")
    }
    steps = minimal, asked, core, cpu - composite, forms, composite
    found: dict[str, set[str]] = {}
    for row, step in zip(rows("dispatcher.order"), steps, strict=True):
        found[row.what] = step.difference(*found.values())
    return found


def implementation_order() -> str:
    """In which order to write kernels, and why."""
    found = order_of_work()
    return of_rows(
        "dispatcher.order",
        step=lambda row: str([*found].index(row.what) + 1),
        number=lambda row: str(len(found[row.what])),
    )


def at_key(operator: str, key: str) -> re.Match[str]:
    """The line of an operator's table: whether it passes, where, and why."""
    found = re.fullmatch(
        r"(?P<passes>fallthrough )?registered at (?P<file>.*):\d+ "
        r"\[(?P<why>.*)\]",
        line_of(operator, key),
    )
    assert found is not None, (operator, key)
    return found


def exempt(key: str) -> dict[str, str]:
    """Operators that pass a key though others stop there -> who says so."""
    lines = ((name, at_key(name, key)) for name in aten_operators())
    return {
        name.removeprefix("aten::"): line["file"]
        for name, line in lines
        if line["passes"] and line["why"] == "kernel"
    }


def fallthroughs() -> str:
    """Who passes the keys above the backend, counted now."""

    def ours(row: Row) -> str:
        found = exempt(row.name).items()
        return code(sorted(n for n, file in found if "csrc/aten/" in file))

    return of_rows(
        "dispatcher.passing",
        # Nobody registered this operator at any of the keys.
        others=lambda row: (
            "pass" if at_key("aten::sort", row.name)["passes"] else "stop"
        ),
        number=lambda row: str(len(exempt(row.name))),
        ours=ours,
    )


def keys_of(tensor: torch.Tensor) -> list[str]:
    """A tensor's keys; the first one goes first."""
    left, names = _C._dispatch_keys(tensor), []
    while (key := left.highestPriorityTypeId()) != _C.DispatchKey.Undefined:
        names.append(key.name)
        left = left.remove(key)
    return names


def entered(
    operator: str, keys: list[str], call: Callable[[], object]
) -> list[str]:
    """The keys at which a call enters a kernel of an operator, in order."""
    found: list[str] = []

    def note(key: str) -> Callable[..., object]:
        kernel = torch.library.get_kernel(operator, key)

        def noted(key_set: Any, *args: Any, **kwargs: Any) -> object:
            found.append(key)
            return kernel.call_boxed(key_set, *args, **kwargs)

        return noted

    with torch.library._scoped_library("aten", "IMPL") as library:
        name = operator.removeprefix("aten::")
        for key in keys:
            # In place of a fallthrough, the note would be a kernel.
            if not at_key(operator, key)["passes"]:
                library.impl(name, note(key), key, with_keyset=True)
        call()
    return found


def entered_source() -> str:
    """The function that finds out which kernels a call enters."""
    return f"```python\n{inspect.getsource(entered)}```\n"


# Calls of a tensor x, and the operator that each one calls.
DRAWN_CALLS = {
    "x + x": "aten::add.Tensor",
    "x.t()": "aten::t",
    "x.mm(x)": "aten::mm",
}


def calls_under_autocast() -> tuple[list[str], dict[str, list[str]]]:
    """The keys of x, and the keys that each call enters."""
    x = torch.ones(2, 2, device="openreg")
    keys, found = keys_of(x), {}
    with torch.autocast("openreg"), warnings.catch_warnings():
        # PyTorch warns of the first kernel that is put over another.
        warnings.simplefilter("ignore")
        for call, operator in DRAWN_CALLS.items():
            run = eval(f"lambda: {call}", {"x": x})
            found[call] = entered(operator, keys, run)
    return keys, found


def key_drawing() -> str:
    """A row a key, a column a call: which kernels it enters, in order."""
    keys, found = calls_under_autocast()
    text, label = [], []
    for column, (call, operator) in enumerate(DRAWN_CALLS.items()):
        middle = 63 + 122 * column
        text.append(f'<text class="code mid" x="{middle}" y="16">{call}</text>')
        for row, key in enumerate(keys):
            y, line = 26 + 72 * row, at_key(operator, key)
            what = "fallthrough" if line["passes"] else line["why"]
            words = what.rsplit(" ", 1)
            if key in found[call]:
                ours = "csrc/aten/" in line["file"] or "/amp/" in line["file"]
                place = found[call].index(key) + 1
                text.append(
                    f'<rect class="{"strong" if ours else ""}" '
                    f'x="{middle - 58}" y="{y + 24}" width="116" height="42"/>'
                    f'<text x="{middle - 52}" y="{y + 59}">{place}</text>'
                )
                what = f"{what}, entered as number {place}"
            label.append(f"{call} at {key}: {what}")
            text += [
                f'<text class="mid" x="{middle}" '
                f'y="{y + 59 - 9 * len(words) + 17 * i}">{word}</text>'
                for i, word in enumerate(words)
            ]
    for row, key in enumerate(keys):
        y = 26 + 72 * row
        text.append(f'<path d="M4 {y}H366"/>')
        text.append(f'<text class="key" x="5" y="{y + 18}">{key}</text>')
    return drawing("; ".join(label) + ".", 26 + 72 * len(keys), text)
