"""The tables of book/chapters/dispatcher.md."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import _C

from tables.common import code, drawing, table
from tables.operators import minimal_rows


class Tool(NamedTuple):
    """A name in torch._C, and a call that the test makes."""

    name: str
    line: str
    call: str
    answer: str  # with ... for what varies


# `C` is torch._C, `x` a tensor on the device, `add` the operator's handle.
TOOLS = [
    Tool(
        "_dispatch_dump",
        "What was registered for an operator, key by key.",
        "C._dispatch_dump('aten::mm')",
        "'name: aten::mm...PrivateUse1: registered at ...'",
    ),
    Tool(
        "_dispatch_dump_table",
        "What the dispatcher will run for each key, computed from that.",
        "C._dispatch_dump_table('aten::mm')",
        "'Undefined: ...PrivateUse1: registered at ... [kernel]...'",
    ),
    Tool(
        "_dispatch_key_set",
        "The keys of a tensor, as text; the last one goes first.",
        "C._dispatch_key_set(x)",
        "'DispatchKeySet(PrivateUse1, ADInplaceOrView, "
        "AutogradPrivateUse1, AutocastPrivateUse1)'",
    ),
    Tool(
        "_dispatch_keys",
        "The same keys, as a set to ask.",
        "C._dispatch_keys(x).has(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_has_kernel",
        "Whether an operator has a kernel for any key.",
        "C._dispatch_has_kernel('aten::mm')",
        "True",
    ),
    Tool(
        "_dispatch_has_kernel_for_dispatch_key",
        "Whether one was registered for this very key.",
        "C._dispatch_has_kernel_for_dispatch_key('aten::linear', "
        "'PrivateUse1')",
        "False",
    ),
    Tool(
        "_dispatch_has_computed_kernel_for_dispatch_key",
        "Whether one will run for this key, wherever it comes from.",
        "C._dispatch_has_computed_kernel_for_dispatch_key('aten::linear', "
        "'PrivateUse1')",
        "True",
    ),
    Tool(
        "_dispatch_has_kernel_for_any_dispatch_key",
        "Whether one was registered for a key of this set.",
        "C._dispatch_has_kernel_for_any_dispatch_key('aten::mm', "
        "C._dispatch_keys(x))",
        "True",
    ),
    Tool(
        "_dispatch_has_backend_fallback",
        "Whether the key has a fallback for every operator.",
        "C._dispatch_has_backend_fallback(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_kernel_for_dispatch_key_is_fallthrough",
        "Whether the kernel says: as if the key were absent.",
        "C._dispatch_kernel_for_dispatch_key_is_fallthrough("
        "'aten::_copy_from', 'Conjugate')",
        "True",
    ),
    Tool(
        "_dispatch_get_computed_kernel_for_dispatch_key",
        "The kernel itself, to be called past the dispatcher.",
        "C._dispatch_get_computed_kernel_for_dispatch_key("
        "'aten::mm', 'PrivateUse1')",
        "SafeKernelFunction(debug='registered at ...')",
    ),
    Tool(
        "_dispatch_get_registrations_for_dispatch_key",
        "Every operator with a kernel for the key.",
        "'aten::mm' in "
        "C._dispatch_get_registrations_for_dispatch_key('PrivateUse1')",
        "True",
    ),
    Tool(
        "_dispatch_print_registrations_for_dispatch_key",
        "Prints the same list.",
        "C._dispatch_print_registrations_for_dispatch_key('PrivateUse1')",
        "None",
    ),
    Tool(
        "_dispatch_get_all_op_names",
        "Every operator of every library.",
        "'aten::mm' in C._dispatch_get_all_op_names()",
        "True",
    ),
    Tool(
        "_dispatch_find_schema_or_throw",
        "The handle of an operator, from name and overload.",
        "C._dispatch_find_schema_or_throw('aten::add', 'Tensor')",
        "<torch._C._DispatchOperatorHandle object at ...>",
    ),
    Tool(
        "_dispatch_call_boxed",
        "Calls a handle through the boxed form.",
        "C._dispatch_call_boxed(add, x, x).tolist()",
        "[2.0, 2.0]",
    ),
    Tool(
        "_dispatch_find_dangling_impls",
        "Kernels that were registered for operators nobody defined.",
        "C._dispatch_find_dangling_impls()",
        "[]",
    ),
    Tool(
        "_dispatch_check_invariants",
        "Raises if the records of one operator contradict each other.",
        "C._dispatch_check_invariants('aten::mm')",
        "None",
    ),
    Tool(
        "_dispatch_check_all_invariants",
        "The same for all operators.",
        "C._dispatch_check_all_invariants()",
        "None",
    ),
    Tool(
        "_dispatch_key_for_device",
        "The key of a device type, by its public name.",
        "C._dispatch_key_for_device('openreg')",
        "'PrivateUse1'",
    ),
    Tool(
        "_dispatch_key_name",
        "The name of a key.",
        "C._dispatch_key_name(C.DispatchKey.PrivateUse1)",
        "'PrivateUse1'",
    ),
    Tool(
        "_dispatch_key_parse",
        "The key of a name.",
        "C._dispatch_key_parse('PrivateUse1')",
        "<DispatchKey.PrivateUse1: ...>",
    ),
    Tool(
        "_dispatch_is_alias_key",
        "Whether a key stands for several.",
        "C._dispatch_is_alias_key(C.DispatchKey.Autograd)",
        "True",
    ),
    Tool(
        "_dispatch_is_included_in_alias",
        "Whether the first key is one of those the second stands for.",
        "C._dispatch_is_included_in_alias(C.DispatchKey.PrivateUse1, "
        "C.DispatchKey.CompositeExplicitAutograd)",
        "True",
    ),
    Tool(
        "_dispatch_get_backend_keyset_from_autograd",
        "The backend below an autograd key.",
        "C._dispatch_get_backend_keyset_from_autograd("
        "C.DispatchKey.AutogradPrivateUse1)",
        "DispatchKeySet(PrivateUse1)",
    ),
    Tool(
        "_dispatch_autogradother_backends",
        "Not a function: the keys that share AutogradOther. "
        "PrivateUse1 has its own.",
        "C._dispatch_autogradother_backends.has(C.DispatchKey.PrivateUse1)",
        "False",
    ),
    Tool(
        "_dispatch_keyset_full",
        "The set of all keys.",
        "C._dispatch_keyset_full().has(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_keyset_full_after",
        "The keys below this one: where a redispatch may go.",
        "C._dispatch_keyset_full_after(C.DispatchKey.AutogradPrivateUse1)"
        ".has(C.DispatchKey.PrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_keyset_to_string",
        "A set of keys as text.",
        "C._dispatch_keyset_to_string(C._dispatch_keys(x))",
        "'DispatchKeySet(PrivateUse1, ...)'",
    ),
    Tool(
        "_dispatch_num_backends",
        "How many backends share the keys with per-backend copies.",
        "C._dispatch_num_backends()",
        "16",
    ),
    Tool(
        "_dispatch_tls_local_include_set",
        "The keys that this thread adds to every call.",
        "C._dispatch_tls_local_include_set()",
        "DispatchKeySet(BackendSelect, ADInplaceOrView)",
    ),
    Tool(
        "_dispatch_tls_local_exclude_set",
        "The keys that this thread takes from every call: "
        "autocast, while it is off.",
        "C._dispatch_tls_local_exclude_set()"
        ".has(C.DispatchKey.AutocastPrivateUse1)",
        "True",
    ),
    Tool(
        "_dispatch_tls_is_dispatch_key_included",
        "Whether this thread adds the key.",
        "C._dispatch_tls_is_dispatch_key_included('PrivateUse1')",
        "False",
    ),
    Tool(
        "_dispatch_tls_is_dispatch_key_excluded",
        "Whether this thread takes the key away.",
        "C._dispatch_tls_is_dispatch_key_excluded('PrivateUse1')",
        "False",
    ),
    Tool(
        "_dispatch_tls_set_dispatch_key_included",
        "Adds a key to this thread's calls, or stops adding it.",
        "C._dispatch_tls_set_dispatch_key_included('Tracer', False)",
        "None",
    ),
    Tool(
        "_dispatch_tls_set_dispatch_key_excluded",
        "Takes a key from this thread's calls, or gives it back.",
        "C._dispatch_tls_set_dispatch_key_excluded('Tracer', False)",
        "None",
    ),
    Tool(
        "_dispatch_isTensorSubclassLike",
        "Whether a tensor is a subclass or a wrapper, as functorch's are.",
        "C._dispatch_isTensorSubclassLike(x)",
        "False",
    ),
    Tool(
        "_dispatch_library",
        "What torch.library.Library is made of.",
        "C._dispatch_library('IMPL', 'aten', 'PrivateUse1')",
        "<torch._C._DispatchModule object at ...>",
    ),
    Tool(
        "_dispatch_pystub",
        "The Python module that must be imported before an operator, if any.",
        "C._dispatch_pystub('aten::mm', '')",
        "None",
    ),
    Tool(
        "_dispatch_set_report_error_callback",
        "What to call instead of raising when an operator has no kernel.",
        "C._dispatch_set_report_error_callback(thirds, None)",
        "None",
    ),
    Tool(
        "_dispatch_clear_leaked_python_filenames",
        "Frees the file names that Python registrations leave behind.",
        "C._dispatch_clear_leaked_python_filenames()",
        "None",
    ),
]

# Guides of earlier releases list these too.
REMOVED_TOOLS = ["_dispatch_is_main_interpreter"]


def dispatch_tools() -> str:
    """Everything in torch._C that begins with _dispatch_."""
    gone = "Gone (torch 2.13); older guides still list it."
    return table(
        ("Name", "What it tells", "A call", "Its answer"),
        [
            *(
                (
                    f"`{tool.name}`",
                    tool.line,
                    f"`{tool.call.replace(f'C.{tool.name}', 'f')}`",
                    f"`{tool.answer}`",
                )
                for tool in TOOLS
            ),
            *((f"`{name}`", gone, "", "") for name in REMOVED_TOOLS),
        ],
    )


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
# One operator for each way that a table can look.
PATH_OPERATORS = [
    "aten::convolution_overrideable",
    "aten::addmm",
    "aten::zeros",
    "aten::abs",
    "aten::native_layer_norm",
    "aten::layer_norm",
    "aten::linear",
]
PATH_KEYS = ("CPU", "PrivateUse1", "AutogradPrivateUse1")


def dispatch_paths() -> str:
    """What runs for some operators, as the dispatcher's table has it now."""
    return table(
        (
            "Operator",
            "PyTorch's kernel for all backends",
            *code(PATH_KEYS).split(),
        ),
        (
            (
                f"`{operator.removeprefix('aten::')}`",
                code(key for key in COMPOSITES if key in registered(operator)),
                *(chosen(operator, key) for key in PATH_KEYS),
            )
            for operator in PATH_OPERATORS
        ),
    )


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


def operator_groups() -> dict[str, tuple[str, set[str]]]:
    """What is counted -> how it is asked, and the operators."""
    operators = aten_operators()
    on_cpu = with_choice("CPU", "kernel")
    return {
        "all of ATen": ("`_dispatch_get_all_op_names()`", set(operators)),
        "core: what `torch.export` reduces programs to": (
            "`Tag.core`",
            with_tag("core"),
        ),
        "views": (
            "`operator.is_view`",
            {n for n, op in operators.items() if op.is_view},
        ),
        "in place": ("`Tag.inplace`", with_tag("inplace")),
        "`out=`": ("`Tag.out`", with_tag("out")),
        "pointwise": ("`Tag.pointwise`", with_tag("pointwise")),
        "reductions": ("`Tag.reduction`", with_tag("reduction")),
        "random": (
            "`Tag.nondeterministic_seeded`",
            with_tag("nondeterministic_seeded"),
        ),
        "with a kernel for the CPU": ("CPU: `kernel`", on_cpu),
        "composite, below autograd": (
            "CPU: `default backend kernel`",
            with_choice("CPU", "default backend kernel"),
        ),
        "composite, above autograd": (
            "CPU: `math kernel`",
            with_choice("CPU", "math kernel"),
        ),
        "nothing for the CPU: another device's, or sparse, nested ...": (
            "CPU: no line",
            with_choice("CPU", ""),
        ),
    }


def operator_set() -> str:
    """How many operators there are, counted while the page is printed."""
    groups = operator_groups()
    core = groups["core: what `torch.export` reduces programs to"][1]
    return table(
        ("ATen's operators (torch 2.13)", "Asked of", "Number", "Of them core"),
        (
            (name, how, str(len(found)), str(len(found & core)))
            for name, (how, found) in groups.items()
        ),
    )


def order_of_work() -> list[tuple[str, set[str], str]]:
    """Step, its operators, and the reason that it comes here."""
    cpu = with_choice("CPU", "kernel")
    core = with_tag("core") & cpu
    minimal = {
        f"aten::{row.operator}"
        for row in minimal_rows()
        if row.operator != "fallback"
    }
    composite = {
        name
        for name in cpu | with_choice("PrivateUse1", "kernel")
        if registered(name) & set(COMPOSITES)
    }
    forms = {name for name in composite if COMPOSITES[0] in registered(name)}
    asked = {n for n in aten_operators() if "_overrideable" in n} | {
        n for n in aten_operators() if n.startswith("aten::_thnn_fused_")
    }
    asked = {n for n in asked if not n.endswith("out")}
    steps = [
        (
            "[the minimal set](operators.md#what-breaks-without-it)",
            minimal,
            "Without it no tensor lives on the device; with it and the "
            "fallback all programs run, slowly.",
        ),
        (
            "what only a backend can have a kernel for: `*_overrideable`, "
            "`_thnn_fused_*`",
            asked - minimal,
            "The CPU has no kernel under that name, so nothing can be "
            "copied to it: convolution and LSTM fail.",
        ),
        (
            "core operators with a CPU kernel",
            core - minimal - asked,
            "Compiled and exported programs are made of these, and most "
            "composite operators too.",
        ),
        (
            "the rest with a CPU kernel, as your models call them",
            cpu - core - minimal - asked - composite,
            "`torch.openreg.fallback.counts()` names the next one.",
        ),
        (
            "functional and in-place forms of structured operators",
            forms - core - minimal - asked,
            "PyTorch makes them of the `out=` form; your own save a call.",
        ),
        (
            "other composites, where PyTorch's is slow or rounds differently",
            composite - forms - core - minimal - asked,
            "They work already; when that is not enough, is said "
            "[above](#overriding-a-composite).",
        ),
    ]
    return steps


def implementation_order() -> str:
    """In which order to write kernels, and why."""
    return table(
        ("Step", "Operators", "Number", "Why here"),
        (
            (str(place), what, str(len(found)), why)
            for place, (what, found, why) in enumerate(order_of_work(), 1)
        ),
    )


# The keys above a backend at which a call may have to pass, and what for.
PASSING_KEYS = {
    "AutocastPrivateUse1": "autocast: casts the arguments of listed operators",
    "ZeroTensor": "a zero that has no memory",
    "Negative": "a view whose numbers are to be read negated",
    "Conjugate": "a view whose numbers are to be read conjugated",
}


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

    def row(key: str) -> tuple[str, ...]:
        found = exempt(key)
        ours = sorted(n for n, file in found.items() if "csrc/aten/" in file)
        # Nobody registered this operator at any of the keys.
        others = "pass" if at_key("aten::sort", key)["passes"] else "stop"
        return (
            f"`{key}`",
            PASSING_KEYS[key],
            others,
            str(len(found)),
            code(ours),
        )

    return table(
        ("Key", "For", "Operators", "except", "of these openreg's"),
        map(row, PASSING_KEYS),
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
