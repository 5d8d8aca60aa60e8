"""The table of book/howto/checklist.md, and what each of its rows must say.

backend/tests/test_checklist.py makes every trial here: the smallest backend,
without the line that a row is about, in a process of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table
from tables.frontend import LOOKUPS, Lookup

# Leaves out the whole backend: what a program sees that imports only torch.
IMPORT = "import smallest"


class Point(NamedTuple):
    step: str  # the group that it belongs to; the groups are in order
    what: str  # what is registered, in Markdown
    needed: bool
    page: str  # where it is explained: a region of the sources or a page
    leaves_out: (
        str  # part of a line of the smallest backend, IMPORT, or nothing
    )
    use: str  # what then uses the device; the last line is the answer
    symptom: str  # the answer, as it is; "..." for what is left out
    test: str  # of torch_openreg: what it must do with the registration


COULD_NOT = (
    "NotImplementedError: Could not run '{}' with arguments from the '{}' "
    "backend..."
)
NO_VIEW = (
    "RuntimeError: The operator aten::{} appears to be a view operator, but "
    'it has no implementation for the backend "tiny:0"...'
)
NO_HOOK = (
    "NotImplementedError: You should register `PrivateUse1HooksInterface`by "
    "`RegisterPrivateUse1HooksInterface` and implement `{}` at the same time "
    "for PrivateUse1."
)
NO_STORAGE = (
    "RuntimeError: Attempted to set the storage of a tensor on device "
    '"cpu" to a storage on different device "tiny:0"...'
)
NO_NAME = (
    "RuntimeError: Expected one of cpu, cuda, ... device type at start of "
    "device string: tiny"
)
NO_METHOD = "RuntimeError: Backend doesn't support {}."
CRASH = "ends with SIGSEGV"
MINIMAL = "test_minimal.py::test_a_missing_row_breaks_its_operation"
DEFAULT_HOOKS = (
    "torch._C._acc.register_python_privateuseone_hook("
    "torch._C._acc.PrivateUse1Hooks())\n"
)
RELOAD = (
    "import io\nfile = io.BytesIO()\n"
    'torch.save(torch.ones(2, device="tiny"), file)\n'
    "file.seek(0)\ntorch.load(file)"
)
NAME, MODULE, MEMORY, GUARD = "Name", "Device module", "Memory", "Guard"
AUTOLOAD = "Autoload"
HOOKS, MINIMUM, REST = "Hooks", "Minimal operators", "Other operators"
HIGH = "High-level modules"


def kernel(name: str, use: str, symptom: str, page: str) -> Point:
    """A row for a kernel of the minimal set."""
    leaves_out = f'PrivateUse1: library.impl("{name}"'
    row = "`" + name + "`"
    return Point(MINIMUM, row, True, page, leaves_out, use, symptom, MINIMAL)


POINTS = [
    Point(
        NAME,
        "`rename_privateuse1_backend`",
        True,
        "py-register",
        "rename_privateuse1_backend",
        'torch.ones(1, device="tiny")',
        NO_NAME,
        "test_frontend.py::test_the_backend_has_its_name_everywhere",
    ),
    Point(
        MODULE,
        "`torch._register_device_module`",
        True,
        "py-register",
        "_register_device_module",
        'torch.get_device_module("tiny")',
        "RuntimeError: Device 'tiny' does not have a corresponding module "
        "registered as 'torch.tiny'.",
        "test_frontend.py::test_the_module_is_found_under_every_name",
    ),
    Point(
        MODULE,
        "`generate_methods_for_privateuse1_backend`",
        False,
        "py-register",
        "generate_methods_for_privateuse1_backend",
        "torch.ones(1).tiny().device",
        "AttributeError: 'Tensor' object has no attribute 'tiny'",
        "test_frontend.py::test_the_backend_has_its_name_everywhere",
    ),
    Point(
        AUTOLOAD,
        "the entry point `torch.backends`",
        False,
        "pyproject-entry-point",
        IMPORT,
        'torch.ones(1, device="tiny").device',
        NO_NAME,
        "test_autoload.py::"
        "test_import_torch_is_enough_and_later_imports_change_nothing",
    ),
    Point(
        MEMORY,
        "`c10::SetAllocator`",
        True,
        "memory",
        "c10::SetAllocator",
        'torch.empty(1, device="tiny").device',
        CRASH,
        "test_allocator.py::test_allocate_gives_a_storage_memory_of_the_pool",
    ),
    Point(
        MEMORY,
        "an allocator that is a `c10::DeviceAllocator`",
        False,
        "memory",
        "",
        "torch.accelerator.memory_allocated()",
        "RuntimeError: ...Allocator for tiny is not a DeviceAllocator.",
        "test_memory.py::test_statistics_follow_every_block",
    ),
    Point(
        MEMORY,
        "`registerDeviceConfigParserHook`",
        False,
        "allocator-register",
        "",
        'torch._C._accelerator_setAllocatorSettings("no_such_option:1")',
        "None",
        "test_memory.py::test_settings_that_cannot_be_are_refused",
    ),
    Point(
        MEMORY,
        "a host allocator, `getPinnedMemoryAllocator`",
        False,
        "hooks-pinned",
        "",
        "torch.ones(1).pin_memory()",
        NO_HOOK.format("getPinnedMemoryAllocator"),
        "test_host_allocator.py::test_pinned_memory_is_the_devices_host_memory",
    ),
    Point(
        GUARD,
        "`C10_REGISTER_GUARD_IMPL`",
        True,
        "guard-devices",
        "registerDeviceGuard",
        'torch.empty(1, device="tiny").device',
        "RuntimeError: PyTorch is not linked with support for tiny devices",
        "test_guard.py::test_device_guard_goes_back_after_an_exception",
    ),
    Point(
        GUARD,
        "`getNewStream`",
        False,
        "guard-streams",
        "",
        'torch.Stream(device="tiny")',
        NO_METHOD.format("create a new Stream"),
        "test_guard.py::test_a_new_stream_names_its_device",
    ),
    Point(
        GUARD,
        "`record`, with the other five for events",
        False,
        "guard-record",
        "",
        'torch.Event(device="tiny").record()',
        NO_METHOD.format("events"),
        "test_guard.py::test_an_event_is_recorded_asked_and_waited_for",
    ),
    Point(
        GUARD,
        "`synchronizeDevice`",
        False,
        "guard-device-wide",
        "",
        "torch.accelerator.synchronize()",
        NO_METHOD.format("synchronizing all streams on device"),
        "test_guard.py::test_synchronize_waits_for_the_device_named",
    ),
    Point(
        GUARD,
        "`getDeviceCapability`",
        False,
        "guard-device-wide",
        "",
        "torch.accelerator.get_device_capability()",
        NO_METHOD.format("getting device capabilities"),
        "test_guard.py::test_capability_lists_the_dtypes_that_can_be_copied",
    ),
    Point(
        HOOKS,
        "`RegisterPrivateUse1HooksInterface`",
        True,
        "hooks-register",
        "RegisterPrivateUse1HooksInterface",
        'x = torch.ones(2, device="tiny", requires_grad=True)\n'
        "x.sum().backward()\nx.grad",
        "RuntimeError: Please register PrivateUse1HooksInterface by "
        "`RegisterPrivateUse1HooksInterface` first.",
        "test_hooks.py::"
        "test_has_primary_context_lets_backward_run_on_every_device",
    ),
    Point(
        HOOKS,
        "`resizePrivateUse1Bytes`",
        True,
        "hooks-resize",
        "RegisterPrivateUse1HooksInterface",
        DEFAULT_HOOKS + 'torch.empty(0, device="tiny").resize_(3).shape',
        NO_HOOK.format("resizePrivateUse1Bytes"),
        "test_hooks.py::test_resize_keeps_the_bytes_that_fit",
    ),
    Point(
        HOOKS,
        "a generator, `getNewGenerator`",
        False,
        "hooks-new-generator",
        "",
        'torch.Generator(device="tiny")',
        NO_HOOK.format("getNewGenerator"),
        "test_hooks.py::test_new_generator_is_of_the_device_asked_for",
    ),
    kernel(
        "empty_strided",
        'torch.ones(1).to("tiny").device',
        CRASH,
        "factory-empty-strided",
    ),
    kernel("_copy_from", 'torch.ones(1).to("tiny").device', CRASH, "copy-from"),
    kernel(
        "_copy_from_and_resize",
        'torch.empty(1, device="tiny").fill_(3).device',
        COULD_NOT.format("aten::_copy_from_and_resize", "CPU"),
        "operators",
    ),
    kernel(
        "resize_",
        'x = torch.ones(2, device="tiny")\n'
        'torch.add(x, 1, out=torch.empty(0, device="tiny")).device',
        CRASH,
        "factory-resize",
    ),
    kernel("set_.source_Storage", RELOAD, NO_STORAGE, "factory-set-whole"),
    kernel(
        "set_.source_Storage_storage_offset",
        'import copy\ncopy.deepcopy(torch.ones(2, device="tiny")).device',
        NO_STORAGE,
        "factory-set",
    ),
    kernel(
        "view",
        'torch.ones(6, device="tiny").view(2, 3).shape',
        NO_VIEW.format("view"),
        "view-register",
    ),
    kernel(
        "as_strided",
        'torch.ones(2, 3, device="tiny")[:, 1].shape',
        NO_VIEW.format("as_strided"),
        "view-register",
    ),
    kernel(
        "_reshape_alias",
        'torch.ones(2, 3, device="tiny")[:, :2].reshape(2, 1, 2).shape',
        NO_VIEW.format("_reshape_alias"),
        "view-register",
    ),
    kernel(
        "unfold",
        'torch.ones(6, device="tiny").unfold(0, 2, 1).shape',
        NO_VIEW.format("unfold"),
        "view-register",
    ),
    kernel(
        "view_as_real",
        'torch.view_as_real(torch.ones(2, device="tiny").cfloat()).shape',
        NO_VIEW.format("view_as_real"),
        "view-register",
    ),
    kernel(
        "view_as_complex",
        'torch.view_as_complex(torch.ones(2, 2, device="tiny")).shape',
        NO_VIEW.format("view_as_complex"),
        "view-register",
    ),
    *(
        Point(
            MINIMUM,
            f"`_copy_from` falls through `{key}`",
            True,
            "copy-math-bits",
            f"{key}: library.impl",
            'x = torch.ones(2, dtype=torch.cfloat).to("tiny")\n'
            f"x.{view}.clone().shape",
            CRASH,
            "test_special.py::test_conjugate_and_negative_views_are_the_cpus",
        )
        for key, view in (("Conjugate", "conj()"), ("Negative", "conj().imag"))
    ),
    Point(
        REST,
        "a fallback",
        False,
        "fallback",
        "library.fallback",
        'x = torch.zeros(2, 2).to("tiny")\n(x @ x).shape',
        COULD_NOT.format("aten::mm.out", "tiny"),
        MINIMAL,
    ),
    Point(
        REST,
        "a comparison of devices in it",
        True,
        "fallback",
        "",
        '(torch.ones(1, 2, device="tiny") @ torch.ones(2, 1)).device',
        "device(type='tiny', index=0)",
        "test_minimal_fallback.py::"
        "test_values_strides_and_random_numbers_are_the_cpus",
    ),
    Point(
        REST,
        "`_has_compatible_shallow_copy_type`",
        True,
        "view-shallow-copy",
        "",
        "layer = torch.nn.Linear(1, 1)\nweight = layer.weight\n"
        "layer.tiny().weight is weight",
        "False",
        "test_storage.py::test_a_module_keeps_its_parameters_and_their_ties",
    ),
    Point(
        REST,
        "`record_stream`",
        False,
        "memory",
        "",
        "x = torch.ones(1, device='tiny')\n"
        "x.record_stream(torch.accelerator.current_stream())",
        COULD_NOT.format("aten::record_stream", "CPU"),
        "test_allocator.py::test_record_stream_keeps_a_block_until_that_stream_is_"
        "done",
    ),
    Point(
        REST,
        "kernels that only a backend can write",
        False,
        "operators-special",
        "",
        'x = torch.ones(1, 1, 3, 3, device="tiny")\n'
        "torch.nn.functional.conv2d(x, x).shape",
        "NotImplementedError: convolution_overrideable not implemented...",
        "test_models.py::test_convolution_passes_gradcheck",
    ),
    Point(
        REST,
        "stubs, for default kernels that ask one",
        False,
        "stubs",
        "",
        'torch.ones(1, device="tiny").cfloat().conj_physical_().shape',
        "RuntimeError: ...DispatchStub: missing kernel for tiny",
        "test_stubs.py::test_every_stub_we_register_is_a_row",
    ),
    Point(
        REST,
        "keys for sparse tensors",
        False,
        "operators-special",
        "",
        'torch.eye(2, device="tiny").to_sparse().shape',
        COULD_NOT.format(
            "aten::_sparse_coo_tensor_with_dims_and_tensors", "Sparsetiny"
        ),
        "test_sparse.py::test_every_layout_is_made_on_the_device",
    ),
    Point(
        REST,
        "keys for quantized tensors",
        False,
        "operators-special",
        "",
        'x = torch.ones(2, device="tiny")\n'
        "torch.quantize_per_tensor(x, 1.0, 0, torch.qint8).shape",
        COULD_NOT.format("aten::empty_quantized", "Quantizedtiny"),
        "test_quantized.py::test_codes_are_the_cpus",
    ),
    Point(
        REST,
        "keys for nested tensors",
        False,
        "operators-special",
        "",
        'torch.nested.nested_tensor([torch.ones(2)]).to("tiny").device',
        COULD_NOT.format("aten::_to_copy", "NestedTensortiny"),
        "test_nested.py::test_made_taken_apart_and_copied",
    ),
    Point(
        REST,
        "autograd for operators of your own",
        False,
        "custom-operators",
        "",
        'own = torch.library.Library("own", "DEF")\n'
        'own.define("half(Tensor x) -> Tensor")\n'
        'own.impl("half", torch.ones_like, "PrivateUse1")\n'
        'x = torch.ones(2, device="tiny", requires_grad=True)\n'
        "torch.ops.own.half(x).sum().backward()\nx.grad",
        "UserWarning: own::half: an autograd kernel was not registered to the "
        "Autograd key(s)...",
        "test_custom_operators.py::"
        "test_autograd_is_registered_where_it_belongs",
    ),
    Point(
        HIGH,
        "autocast: a kernel or fallthrough for every operator",
        False,
        "amp",
        "",
        "torch.tiny.get_amp_supported_dtype = lambda: [torch.float16]\n"
        'x = torch.ones(2, 2, device="tiny")\n'
        'with torch.autocast("tiny"):\n    y = x @ x\ny.dtype',
        COULD_NOT.format("aten::matmul", "Autocasttiny"),
        "test_amp.py::test_every_operator_of_pytorchs_lists_is_cast",
    ),
    Point(
        HIGH,
        "serialization: a device module, of which `torch.load` uses "
        "`is_available`, `device_count`, `current_device` and `device`",
        True,
        "storage",
        "def device(",
        RELOAD,
        "AttributeError: module 'smallest' has no attribute 'device'",
        "test_serialization.py::test_every_format_meets_every_map_location",
    ),
    Point(
        HIGH,
        "a reducer of `ForkingPickler`, to share tensors",
        False,
        "storage",
        "",
        "from multiprocessing.reduction import ForkingPickler\n"
        'ForkingPickler.dumps(torch.ones(2, device="tiny"))',
        "RuntimeError: _share_fd_: only available on CPU",
        "test_sharing.py::test_writes_are_seen_on_both_sides",
    ),
    Point(
        HIGH,
        "PyTorch's test base: a device module",
        False,
        "testing",
        "_register_device_module",
        "from torch.testing._internal.common_device_type import (\n"
        "    PrivateUse1TestBase)\nPrivateUse1TestBase.setUpClass()",
        "AssertionError: torch has no module of `tiny`, you should register a "
        "module by `torch._register_device_module`.",
        "test_device_generic.py::"
        "test_without_the_device_module_the_base_says_what_is_missing",
    ),
    Point(
        HIGH,
        "`torch.distributed`: a backend for the device type",
        False,
        "",
        "",
        "import torch.distributed as dist\n"
        'dist.init_process_group("gloo", store=dist.HashStore(), rank=0, '
        "world_size=1)\n"
        'dist.all_reduce(torch.ones(2, device="tiny"))',
        "RuntimeError: No backend type associated with device type tiny",
        "",
    ),
    Point(
        HIGH,
        "graphs: `GraphImplRegistry`",
        False,
        "",
        "",
        "torch.accelerator.Graph()",
        "RuntimeError: Graph is not supported on device type: tiny",
        "",
    ),
    Point(
        HIGH,
        "dynamo: `register_interface_for_device`",
        False,
        "",
        "",
        "from torch._dynamo.device_interface import get_interface_for_device\n"
        'get_interface_for_device("tiny")',
        "NotImplementedError: No interface for device tiny",
        "",
    ),
    Point(
        HIGH,
        "inductor: `register_backend_for_device`",
        False,
        "",
        "",
        'torch.compile(lambda x: x + 1)(torch.ones(2, device="tiny"))',
        "InductorError: KeyError: 'tiny'...",
        "",
    ),
    Point(
        HIGH,
        "the profiler: `REGISTER_PRIVATEUSE1_PROFILER`",
        False,
        "",
        "",
        "from torch.profiler import ProfilerActivity, profile\n"
        "with profile(activities=[ProfilerActivity.PrivateUse1]) as p:\n"
        '    torch.ones(2, device="tiny")\nlen(p.events())',
        "0",
        "",
    ),
]

# What PyTorch finds in a device module by name: the one list is the chapter's.
NEEDED_NAMES = {
    *("is_available", "device_count", "current_device", "device"),
    *("is_initialized", "_is_in_bad_fork", "manual_seed_all"),
}


# In which book/tests/test_tables_frontend.py leaves a name out.
TEST = "test_without_the_name_pytorch_answers_as_the_row_says"
TESTS = {"_lazy_init": "test_without_lazy_init_early_seeds_are_lost"}


def link(page: str) -> str:
    """To a listing, or to a chapter."""
    if page == "":
        return "next"
    chapters = {
        *("memory", "operators", "fallback", "operators-special", "stubs"),
        *("custom-operators", "amp", "storage", "testing"),
    }
    if page in chapters:
        return f"[](../chapters/{page}.md)"
    return f"[](#{page})"


def said(symptom: str) -> str:
    """A message as it is, or in words where there is none."""
    words = {
        CRASH: "The process ends with SIGSEGV.",
        "False": "`Module.to()` makes new parameters, and an optimizer that "
        "has the old ones trains these.",
        "None": "A misspelt setting of the allocator is accepted, and nothing "
        "says so.",
        "0": "No event is recorded, and nothing says so.",
        "device(type='tiny', index=0)": "It computes, and nothing says so.",
    }
    return words.get(symptom, f"``{symptom}``{{.said}}")


def of_lookup(lookup: Lookup) -> tuple[str, ...]:
    """The row of a name in the device module, as its chapter tells it."""
    told = lookup.without if ": " in lookup.without else ""
    test = f"`test_tables_frontend.py::{TESTS.get(lookup.name, TEST)}`{{.said}}"
    return (
        f"`{lookup.name}`",
        "yes" if lookup.name in NEEDED_NAMES else "no",
        f"``{told}``{{.said}}" if told else lookup.means,
        f"[](../chapters/frontend.md#what-pytorch-looks-up-by-name)<br>{test}",
    )


def of_point(point: Point) -> tuple[str, ...]:
    test = f"`{point.test}`{{.said}}" if point.test else ""
    return (
        point.what,
        "yes" if point.needed else "no",
        said(point.symptom),
        "<br>".join(filter(None, (link(point.page), test))),
    )


def checklist() -> str:
    """Every registration point of a backend, in the order to do them."""
    rows: list[tuple[str, ...]] = []
    for step in dict.fromkeys(point.step for point in POINTS):
        group = [of_point(point) for point in POINTS if point.step == step]
        if step == MODULE:
            group += map(of_lookup, LOOKUPS)
        first = f"**{step}**<br>{group[0][0]}"
        rows += [(first, *group[0][1:]), *group[1:]]
    return table(("What", "Needed", "Without it", "Code; test"), rows)
