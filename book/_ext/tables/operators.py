"""The tables of book/chapters/operators.md."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, NamedTuple

from tables.common import ROOT, table


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
        "Raises if the books of one operator contradict themselves.",
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


def minimal_rows() -> Any:
    """The rows that backend/tests/test_minimal.py proves."""
    path = ROOT / "backend" / "tests" / "everyday.py"
    spec = importlib.util.spec_from_file_location("everyday", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ROWS


# Where each operator of the minimal set is registered; names of regions.
MINIMAL_LISTINGS = {
    "empty.memory_format": "factory-empty",
    "resize_": "factory-resize",
    "set_": "factory-set",
    "set_.source_Storage": "factory-set",
    "set_.source_Storage_storage_offset": "factory-set",
    "set_.source_Tensor": "factory-register",
    "empty_strided": "factory-register",
    "_copy_from": "copy-engine",
    "_copy_from_and_resize": "copy-engine",
    "record_stream": "stream-use-record",
    "fallback": "fallback-register",
}


def minimal_set() -> str:
    """The operators that no backend can lack, and what breaks without."""
    return table(
        ("Operator", "What it is for", "Breaks without it", "With"),
        (
            (
                f"[`{row.operator}`]"
                f"(#{MINIMAL_LISTINGS.get(row.operator, 'view-register')})",
                row.purpose,
                row.breaks.replace("_", " "),
                f"`{row.says}`",
            )
            for row in minimal_rows()
        ),
    )
