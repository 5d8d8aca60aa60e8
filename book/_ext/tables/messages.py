"""The tables of book/reference/errors.md: every message in our sources.

The messages are found in the sources themselves. What is to be said of each
stands in `TOLD`, once, so a message that nobody speaks of fails a test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import regions
from tables.checklist import MODULE, POINTS
from tables.common import ROOT, table
from tables.frontend import LOOKUPS

READS = ("*.py", "*.toml", "backend/**", "book/**/*.md", "book/_ext/**")

GAP = "…"  # what varies in a message
# A call that raises, warns or reports, and how many of its arguments come
# before the message.
RAISES = {
    "TORCH_CHECK": 1,
    "TORCH_CHECK_VALUE": 1,
    "TORCH_CHECK_NOT_IMPLEMENTED": 1,
    "TORCH_CHECK_WITH": 2,
    "TORCH_WARN": 0,
    "TORCH_WARN_ONCE": 0,
    "fail": 1,
    "AcceleratorError": 2,
    "refuse": 0,
    "snprintf": 2,
}
LITERAL = r'"(?:[^"\\]|\\.)*"'
CALL = re.compile(rf"\b({'|'.join(RAISES)})\(")


class Found(NamedTuple):
    file: str
    line: int
    text: str


def arguments(text: str, start: int) -> list[str]:
    """The arguments of a C++ call whose parenthesis opens before `start`."""
    parts, depth, begin = [], 1, start
    for token in re.finditer(
        rf"{LITERAL}|//[^\n]*|[()\[\]{{}},]", text[start:]
    ):
        char, at = token[0], start + token.start()
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if depth == 0 or (char == "," and depth == 1):
            parts.append(text[begin:at])
            begin = at + 1
        if depth == 0:
            break
    return parts


def of_argument(argument: str) -> str:
    """The text of one argument: literals as they are, the rest a gap."""
    bare = re.sub(r"//[^\n]*", "", argument)
    literals = re.findall(LITERAL, bare)
    if not literals or re.sub(rf"{LITERAL}|\s", "", bare):
        literals = [x for x in literals if len(x) > 20]
        if not literals:
            return GAP
    text = "".join(ast.literal_eval(literal) for literal in literals)
    return re.sub(r"%[a-z]+", GAP, text)


def in_cpp(file: str, text: str) -> Iterator[Found]:
    for call in CALL.finditer(text):
        parts = arguments(text, call.end())[RAISES[call[1]] :]
        texts = [*map(of_argument, parts)]
        if call[1] == "refuse":  # of a variable: its name, what is expected
            texts.insert(1, f" is '{GAP}'; expected ")
        message = "".join(texts)
        message = re.sub(rf"{GAP}+$|{GAP}(?={GAP})", GAP, message)
        if re.search(r"\w{3}.* ", message):
            line = text.count("\n", 0, call.start()) + 1
            yield Found(file, line, message.strip())


def of_node(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(of_node, node.values))
    if isinstance(node, ast.Lambda):
        return of_node(node.body)
    return GAP


def in_python(file: str, text: str) -> Iterator[Found]:
    for node in ast.walk(ast.parse(text)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = ast.unparse(call.func)
        if call is not node or name in ("torch._check", "warnings.warn"):
            message = of_node(call.args[name == "torch._check"])
            if re.search(r"\w{3}", message):
                yield Found(file, call.lineno, message)


def found() -> list[Found]:
    """Every message of the backend, in the order of the files."""
    messages: list[Found] = []
    for folder in ("torch_openreg", "csrc", "device"):
        for path in sorted((ROOT / "backend" / folder).rglob("*.*")):
            file, find = path.relative_to(ROOT).as_posix(), None
            if path.suffix == ".cpp":
                find = in_cpp
            elif path.suffix == ".py":
                find = in_python
            if find:
                messages += find(file, path.read_text("utf-8"))
    return messages


class Told(NamedTuple):
    """What is to be said of a message, or of several that are alike."""

    says: str  # a part of it, which its test expects
    why: str
    do: str
    test: str  # file::function of a tests folder, or a page that shows it


NULL = "A pointer for the answer, or one to memory, is missing."
SYSTEM = "The system refused; its own words end the message."
FORKED = "The child has the parent's memory, and none of its threads."
COPY = "test_device_memory.py::"
ORDER = "test_device_stream.py::"
SHARED = "test_sharing_device.py::"
DEVICE = "test_device.py::"
QUANT = "test_quantized.py::"
AUTO = "test_autoload.py::"
HERE = "test_messages.py::test_a_refusal_that_no_other_test_meets"
ALONE = AUTO + "test_each_way_to_be_broken_is_an_import_error_with_its_cause"
BAD_VALUE = DEVICE + "test_malformed_values_are_refused"
TOLD = [
    # Python.
    Told(
        "has not been built here",
        "Python found the checkout's folder, which has no libraries.",
        "Install it, or start Python elsewhere.",
        ALONE,
    ),
    Told(
        "torch_openreg was built against PyTorch",
        "C++ libraries fit one version of PyTorch.",
        "Install that version, or build the backend again.",
        ALONE,
    ),
    Told(
        "torch_openreg is installed, but cannot be loaded:",
        "The linker's own message is in the middle.",
        "Build and install again, with the PyTorch that is there.",
        "chapters/autoload.md",
    ),
    Told(
        "is here already, and PyTorch has room for one device",
        "Two installed packages want the one dispatch key.",
        "Load one: [life beside other backends](../howto/coexist.md).",
        "howto/coexist.md",
    ),
    Told(
        "traced already",
        "The device has one trace for the process.",
        "Leave the other `with` first.",
        "test_event.py::test_one_at_a_time",
    ),
    Told(
        "Cannot re-initialize openreg in forked subprocess.",
        FORKED,
        '`multiprocessing.set_start_method("spawn")`.',
        "test_runtime.py::test_a_child_forked_after_use_is_told_to_spawn",
    ),
    Told(
        "a device with an",
        "A function that means one device was given none.",
        'Say which: `0`, `"openreg:0"`.',
        "test_frontend.py::"
        "test_an_index_is_read_from_names_devices_and_numbers",
    ),
    Told(
        "Expected an openreg device",
        "A function of `torch.openreg` was given another device type.",
        "Give it an index, or a device of `openreg`.",
        "test_runtime.py::test_another_device_type_is_refused",
    ),
    Told(
        "There is no operator",
        "The name of an operator is misspelt, or its library is not loaded.",
        "Write `aten::add`, or one overload, `aten::add.Tensor`.",
        "chapters/fallback.md",
    ),
    Told(
        "Expected a float as fraction, but got",
        "The fraction of memory is a number.",
        "Give a float from 0 to 1.",
        "test_memory_python.py::test_a_fraction_that_cannot_be_is_refused",
    ),
    Told(
        "devices, but got",
        "States were saved on a machine with more devices, or fewer.",
        "Set the states one by one, with `set_rng_state(state, device)`.",
        "test_random.py::test_too_few_states_are_refused_before_any_is_set",
    ),
    Told(
        "event cannot be shared with another",
        "An event lives in one process.",
        "Synchronize, then send the tensor.",
        "chapters/event.md",
    ),
    Told(
        "Expected a torch.Stream",
        "A number was given, and numbers repeat on every device.",
        "Pass the stream itself.",
        "test_stream.py::test_what_is_no_stream_is_refused_by_type",
    ),
    Told(
        "swiglu: expected x and gate of one shape and one",
        "The two halves are multiplied element by element.",
        "Give both one shape and dtype; nothing is broadcast.",
        "chapters/custom-operators.md",
    ),
    # The backend.
    Told(
        "unsafe to autocast",
        "In half precision its logarithm becomes infinite.",
        "Use `binary_cross_entropy_with_logits`, without the sigmoid.",
        "test_amp.py::test_binary_cross_entropy_is_refused_in_pytorchs_words",
    ),
    Told(
        "Expected all tensors to be on the same device, but found at least two",
        "An operator was given tensors of two devices.",
        "Move one: `x.to(y.device)`.",
        "chapters/operators-inside.md",
    ),
    Told(
        "gates of one size, side by side",
        "A fused cell was given a tensor that does not divide into its gates.",
        "Give it what the cell's linear layers return.",
        "test_models.py::test_cells_look_at_shapes_and_devices_first",
    ),
    Told(
        "openreg: results of layout",
        "The CPU's kernel answers in a layout that is the CPU's alone.",
        "Compute it on the host.",
        "chapters/operators-inside.md",
    ),
    Told(
        "cannot be converted to Scalar",
        "`item()` is for one element.",
        "Choose one, or use `tolist()`.",
        "test_operators.py::test_item_reads_every_dtype",
    ),
    Told(
        "is not supported; expected torch.strided",
        "`torch.empty` was asked for a layout without plain memory.",
        "Make the tensor sparse from its parts.",
        HERE,
    ),
    Told(
        "Only dense CPU tensors can be pinned",
        "A factory got `pin_memory=True` and a device.",
        "Pin host memory, then copy.",
        HERE,
    ),
    Told(
        "Unsupported memory format",
        "`resize_` cannot preserve strides of another shape.",
        "Name a format, or leave it out.",
        "test_operators.py::test_resize_grows_the_storage_and_keeps_what_was_there",
    ),
    Told(
        "openreg: there is no copy from ",
        "One end of the copy is on another kind of accelerator.",
        "`x.cpu().to(...)`.",
        "test_operators.py::test_memory_of_a_third_kind_of_device_is_not_read",
    ),
    Told(
        "has no kernel for the device, and torch.openreg.fallback forbids",
        "You, or a test, forbade the fallback.",
        "Write the kernel, or allow the operator by name.",
        "chapters/fallback.md",
    ),
    Told(
        "' is not implemented for ",
        "The operator has no kernel for this dtype, nor for a wider one.",
        "Convert the argument, as in `x.float()`.",
        "chapters/operators-special.md",
    ),
    Told(
        "calls FBGEMM, which needs host tensors.",
        "A library for the host alone got a device tensor.",
        "Call it with `x.cpu()`.",
        "test_operators.py::test_operators_of_a_library_for_the_host_are_refused",
    ),
    Told(
        "has no kernel for the device and runs on the host, on copies.",
        "The fallback policy is `warn`.",
        "Write the kernel if it matters for speed.",
        "chapters/fallback.md",
    ),
    Told(
        "openreg: the CPU fallback is itself built on '",
        "The minimal set of operators lacks one.",
        "Register it; the fallback cannot stand in for it.",
        "chapters/fallback.md",
    ),
    Told(
        "cannot make a view",
        "A view shares memory, and a copy does not.",
        "Register PyTorch's own kernel: a view only writes metadata.",
        "chapters/fallback.md",
    ),
    Told(
        "takes no generator",
        "On the host it would draw from the CPU's generator, and the device's "
        "seed would have no effect.",
        "Register a kernel that draws from the device's generator, or give "
        "the operator a `Generator?` argument.",
        "chapters/fallback.md",
    ),
    Told(
        "'; expected 'allow',",
        "The policy is one of three words.",
        "Write `allow`, `warn` or `forbid`.",
        "test_fallback.py::test_an_unknown_word_is_refused",
    ),
    Told(
        "Copying from quantized Tensor to non-quantized Tensor",
        "A copy does not compute floats from codes.",
        "`x.dequantize()`.",
        HERE,
    ),
    Told(
        "only works with",
        "Source and target are quantized in two ways.",
        "Dequantize, then quantize as the target is.",
        QUANT + "test_a_copy_between_dtypes_is_refused",
    ),
    Told(
        "its elements share",
        "Two or four codes lie in one byte.",
        "Copy the whole tensor.",
        QUANT + "test_codes_that_share_a_byte_are_copied_as_a_whole",
    ),
    Told(
        "a quantized tensor cannot be viewed as",
        "The quantizer belongs to the dtype.",
        "`int_repr()` gives the codes.",
        HERE,
    ),
    Told(
        "expected 'full' or 'minimal'",
        "The variable is misspelt.",
        "Write one of the two.",
        "test_minimal.py::test_values_that_mean_nothing_are_refused",
    ),
    Told(
        "expected the name of a kernel",
        "No kernel has this name.",
        "Write it as in `native_functions.yaml`, without `aten::`.",
        "test_minimal.py::test_values_that_mean_nothing_are_refused",
    ),
    Told(
        "expandable_segments has no",
        "The option is for allocators that map memory piece by piece.",
        "Leave it out.",
        "test_memory.py::test_a_full_device_raises_with_numbers_and_goes_on",
    ),
    Told(
        "openreg out of memory. Tried to allocate",
        "The device has a capacity, and it is used up.",
        "Free tensors, or set `OPENREG_DEVICE_MEMORY`.",
        "test_memory.py::test_out_of_memory_says_all_that_matters",
    ),
    Told(
        "A number in PYTORCH_ALLOC_CONF cannot be",
        "The value is not `option:number`.",
        "Write decimal digits, commas between options.",
        "test_environment.py::test_pytorch_alloc_conf_that_has_no_number_is_refused",
    ),
    Told(
        "must be in [0, 1], but got",
        "A fraction of memory is a part of it.",
        "Give a float from 0 to 1.",
        "test_memory_python.py::test_a_fraction_that_cannot_be_is_refused",
    ),
    Told(
        "No openreg devices are available: OPENREG_DEVICE_COUNT",
        "The environment took the devices away.",
        "Ask `is_available()` first, or unset the variable.",
        "test_errors.py::test_without_a_device_every_use_says_so_and_nothing_crashes",
    ),
    Told(
        "What was queued behind it is lost",
        "Queued work failed earlier; this call is not to blame.",
        "Run with `OPENREG_LAUNCH=blocking` to see which is.",
        "chapters/errors.md",
    ),
    Told(
        "The device index is out of range. It must be in [0,",
        "There is no such device.",
        "Count from 0; `device_count()` says how many there are.",
        "chapters/device.md",
    ),
    Told(
        "cannot be recorded on a stream of device",
        "An event belongs to the device of its first record.",
        "Make one for each device.",
        "chapters/event.md",
    ),
    Told(
        "has no offset; expected 0, got",
        "The generator counts in its state, not in an offset.",
        "`set_state`.",
        "test_generator.py::test_it_has_no_offset_but_gives_one_to_whoever_copies_it",
    ),
    Told(
        "' generator device but found '",
        "The generator is of another device than the tensor.",
        "Make it with the tensor's device.",
        "test_generator.py::test_a_generator_of_another_device_is_refused",
    ),
    Told(
        "devices was given the device",
        "C++ asked our guard about a device of another type.",
        "Ask the guard of that type.",
        "test_guard.py::test_another_device_type_is_refused",
    ),
    Told(
        "is host memory, not memory of an openreg",
        "A pointer to host memory was declared the device's.",
        "Copy it to the device.",
        "test_hooks.py::test_device_from_ptr_refuses_host_memory",
    ),
    Told(
        "Trying to resize storage that is not resizable",
        "The memory is another's: a library's, or a process's.",
        "Clone the tensor, and resize that.",
        "test_storage.py::test_a_storage_of_foreign_memory_is_not_resized",
    ),
    Told(
        "Attempted to send openreg tensor received from another process",
        "Only the owner can share its memory.",
        "Clone, then send.",
        "test_sharing.py::test_what_came_from_another_process_is_not_sent_on",
    ),
    Told(
        "is not within a segment",
        "The message from the other process is damaged.",
        "Send tensors with `torch.multiprocessing` only.",
        "test_sharing.py::test_a_torn_message_opens_nothing",
    ),
    Told(
        "There is no stream",
        "The number of a stream was made up, or is another process's.",
        "Use a stream that `torch.Stream` made here.",
        "test_stream.py::test_one_that_does_not_exist_is_refused",
    ),
    Told(
        "Expected a stream of an",
        "The stream is of another device type.",
        'Make it with `device="openreg"`.',
        "test_allocator.py::test_record_stream_refuses_a_stream_of_another_kind",
    ),
    Told(
        "priority of 0 or below",
        "As in CUDA, lower numbers go first and 0 is the usual.",
        "Give 0 or a negative number.",
        "test_stream.py::test_priorities",
    ),
    # The device.
    Told(
        "whole number from 0 to 16",
        "`OPENREG_DEVICE_COUNT` cannot be read.",
        "Digits alone.",
        BAD_VALUE,
    ),
    Told(
        "(one page) to 1024G",
        "`OPENREG_DEVICE_MEMORY` cannot be read, or is too small or large.",
        "A number with K, M or G.",
        BAD_VALUE,
    ),
    Told(
        "async or blocking",
        "`OPENREG_LAUNCH` is not one of the three modes.",
        "Write one, in small letters.",
        BAD_VALUE,
    ),
    Told("0 or 1", "`OPENREG_SEGV_HANDLER` is a switch.", "0 or 1.", BAD_VALUE),
    Told(
        "in no live block",
        "The memory was freed, or never allocated.",
        "Keep the tensor alive; look for a pointer that outlived it.",
        COPY + "test_double_free_is_refused",
    ),
    Told(
        "pass the end of its block;",
        "More bytes were asked for than the block has.",
        "Check the count: it is in bytes.",
        COPY + "test_copy_past_the_end_of_a_block_is_refused",
    ),
    Told(
        "memory, but the kind expects",
        "The direction does not fit the pointers.",
        "`orMemcpyDefault` finds it by itself.",
        COPY + "test_wrong_kind_is_refused_and_moves_nothing",
    ),
    Told(
        "is not memory of device",
        "A peer copy names the owners, and one is wrong.",
        "Ask `orPointerGetAttributes`.",
        COPY + "test_peer_copy_checks_whose_the_pointers_are",
    ),
    Told(
        "expected 0 to 4",
        "The kind is no value of `orMemcpyKind`.",
        "Use its names.",
        COPY + "test_unknown_kind_is_refused",
    ),
    Told("is NULL", NULL, "Pass its address.", COPY + "test_null_is_refused"),
    Told(
        "not device memory",
        "`orMemset` is for the device.",
        "`std::memset`.",
        COPY + "test_memset_is_for_device_memory",
    ),
    Told(
        "bytes of addresses",
        "The limit of address space (`ulimit -v`) is too low.",
        "Raise it, or set `OPENREG_DEVICE_MEMORY`.",
        DEVICE + "test_no_addresses_to_be_had_is_an_error_that_may_pass",
    ),
    Told(
        "this process was forked from one that had used the device",
        FORKED,
        "Start it with `spawn`.",
        "test_device_fault.py::test_child_of_a_user_is_refused_by_every_call",
    ),
    Told(
        "cannot map the memory of",
        SYSTEM,
        "Look at `/dev/shm` and the limits of the container.",
        DEVICE + "test_no_memory_to_be_had_is_an_error_that_may_pass",
    ),
    Told(
        "there are no devices: OPENREG_DEVICE_COUNT=0",
        "The environment took the devices away.",
        "Unset the variable.",
        DEVICE + "test_without_devices_addresses_are_zero_and_use_is_refused",
    ),
    Told(
        "is out of range; expected 0 to",
        "There is no such device.",
        "Ask `orGetDeviceCount`.",
        "chapters/emulator.md",
    ),
    Told(
        "end it first",
        "This thread has a stream's turn, so the stream cannot go.",
        "`orStreamEndTurn`.",
        ORDER + "test_stream_is_not_destroyed_in_ones_own_turn",
    ),
    Told(
        "; orDeviceReset ends this",
        "Queued work of the device failed earlier.",
        "Find it with `OPENREG_LAUNCH=blocking`, then reset.",
        ORDER + "test_queued_failure_is_the_devices_until_reset",
    ),
    Told(
        "is not an event, or was destroyed",
        "The handle is stale.",
        "Destroy an event after its last use.",
        "test_device_event.py::test_destroyed_and_foreign_events_are_refused",
    ),
    Told(
        "not an aligned address of host",
        "The device waits for a whole word that the host writes.",
        "Eight bytes, aligned, in host memory.",
        ORDER + "test_value_must_be_in_aligned_host_memory",
    ),
    Told(
        "expected 0 or 2",
        "There are two kinds of events.",
        "0, or `orEventDisableTiming`.",
        "test_device_event.py::test_event_is_made_with_flags_that_are_known",
    ),
    Told(
        ", the stream of device",
        "An event is recorded on streams of its own device.",
        "Make one there.",
        "test_device_event.py::test_event_is_recorded_on_streams_of_its_device",
    ),
    Told(
        "the events are of devices",
        "Two devices have two clocks.",
        "Compare events of one.",
        "test_device_event.py::"
        "test_elapsed_time_needs_two_records_with_timing_of_one_device",
    ),
    Told(
        "both events must be",
        "There is no time without a record.",
        "Make both with timing, and record both.",
        "test_device_event.py::"
        "test_elapsed_time_needs_two_records_with_timing_of_one_device",
    ),
    Told(
        "the process is ending",
        "Work was launched while the process exits.",
        "End such threads before `main` does.",
        "",
    ),
    Told(
        "back to the system:",
        SYSTEM,
        "The block stays as it was.",
        COPY + "test_pages_that_cannot_go_back_leave_the_block_alone",
    ),
    Told(
        "has no gap of",
        "The device is full, or its free memory is in pieces.",
        "Free blocks; a pool asks for large ones.",
        COPY + "test_capacity_is_real_and_comes_back",
    ),
    Told(
        "not the start of a block",
        "Only what `orMalloc` gave can be freed.",
        "Keep that pointer; `orIpcCloseMemHandle` closes what was opened.",
        COPY + "test_interior_pointer_cannot_be_freed",
    ),
    Told(
        "bytes of host memory",
        SYSTEM,
        "Free pinned memory.",
        COPY + "test_pinned_memory_runs_out",
    ),
    Told("munmap:", SYSTEM, "Report it: this should not happen.", ""),
    Told(
        "not a pointer that orMallocHost",
        "Only what `orMallocHost` gave can be freed.",
        "Keep that pointer.",
        COPY + "test_only_live_pinned_blocks_can_be_freed",
    ),
    Told(
        "descriptor ",
        "The file descriptor is closed, or another file's.",
        "Send it over a socket; a number alone means nothing elsewhere.",
        SHARED + "test_descriptor_must_be_a_devices_memory",
    ),
    Told(
        "are no block of a memory of",
        "The range is not in the memory that was shared.",
        "Send the handle as it was made.",
        SHARED + "test_range_must_be_in_the_memory",
    ),
    Told("bytes of another process's device:", SYSTEM, "Close handles.", ""),
    Told(
        "not the start of a live block",
        "A whole block is shared, not a part.",
        "Share the block, and send an offset.",
        SHARED + "test_only_the_start_of_a_live_block_has_a_handle",
    ),
    Told(
        "came from another process",
        "Only the owner can share its memory.",
        "Copy it to memory of this process.",
        SHARED + "test_opened_block_is_not_passed_on",
    ),
    Told(
        "or closed",
        "The pointer was closed already, or never opened.",
        "Close once for each open.",
        SHARED + "test_opening_again_gives_the_same_addresses_until_the_last_"
        "close",
    ),
    Told(
        " answered ",
        "A kernel returned an error, and with it perhaps a sentence.",
        "Look at that sentence; the kernel is named.",
        DEVICE + "test_kernel_that_fails_at_the_call_is_a_launch_failure_"
        "and_is_released",
    ),
    Told(
        "is not a stream, or was destroyed",
        "The handle is stale.",
        "Destroy a stream after its last use.",
        ORDER + "test_destroyed_handle_is_refused_and_not_used_again",
    ),
    Told(
        "was called from inside",
        "A kernel or host function would wait for itself.",
        "Launch from the host.",
        ORDER + "test_host_function_may_not_launch_or_wait",
    ),
    Told(
        "default stream cannot",
        "It belongs to the device.",
        "Destroy what `orStreamCreateWithPriority` made.",
        ORDER + "test_default_stream_cannot_be_destroyed",
    ),
    Told(
        "does not hold the stream's turn",
        "A turn is ended by the thread that began it.",
        "End it there.",
        ORDER + "test_turn_is_ended_by_who_holds_it",
    ),
]


def told(message: Found) -> list[Told]:
    return [row for row in TOLD if row.says in message.text]


def places() -> dict[str, list[regions.Region]]:
    """File -> its regions: where the code of a message is explained."""
    found, _ = regions.find_regions(regions.read_sources())
    by_file: dict[str, list[regions.Region]] = {}
    for region in found:
        by_file.setdefault(region.file, []).append(region)
    return by_file


def cell(text: str) -> str:
    """A message as it is, on one line."""
    return f"``{' '.join(text.split())}``{{.said}}"


def messages_of(folder: str) -> str:
    """The messages of a folder, each with what is to be said of it."""
    here = [m for m in found() if m.file.startswith(f"backend/{folder}")]
    shown = places()
    rows = []
    for row in TOLD:
        mine = [m for m in here if row in told(m)]
        if not mine:
            continue
        links = dict.fromkeys(
            f"[](#{region.name})"
            for m in mine
            for region in shown.get(m.file, [])
            if region.first <= m.line <= region.last
        )
        test = f"[](../{row.test})" if row.test.endswith(".md") else ""
        if row.test and not test:
            test = f"`{row.test}`{{.said}}"
        rows.append(
            (
                "<br>".join(dict.fromkeys(cell(m.text) for m in mine)),
                f"{row.why} *{row.do}*",
                "<br>".join([*links, test or "not reproduced"]),
            )
        )
    return table(("Message", "Why, and *what to do*", "Code; test"), rows)


def messages_python() -> str:
    return messages_of("torch_openreg")


def messages_backend() -> str:
    return messages_of("csrc")


def messages_device() -> str:
    return messages_of("device")


def messages_missing() -> str:
    """What PyTorch says where a backend has left something out."""
    missing = [(p.symptom, p.what) for p in POINTS]
    missing += [(x.without, f"{MODULE.lower()}: `{x.name}`") for x in LOOKUPS]
    said: dict[str, list[str]] = {}
    for text, what in missing:
        if ": " in text:
            said.setdefault(text, []).append(what)
    return table(
        ("Message", "What is missing"),
        ((cell(text), "; ".join(said[text])) for text in sorted(said)),
    )


ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Unsupported|Warning): \S.*$", re.M)


def on_pages() -> dict[str, list[str]]:
    """Message -> the pages whose examples run into it; none of our own."""
    shown: dict[str, list[str]] = {}
    for page, text in regions.read_pages().items():
        for fence in regions.find_fences(page, text):
            if fence.kind not in ("python", "console", "output"):
                continue
            for message in ERROR.findall(fence.body):
                if any(row.says in message for row in TOLD):
                    continue
                pages = shown.setdefault(message, [])
                if page not in pages:
                    pages.append(page)
    return shown


def messages_shown() -> str:
    """PyTorch's messages that an example of a chapter runs into."""
    rows = (
        (
            cell(message),
            " ".join(f"[](../{p.removeprefix('book/')})" for p in pages),
        )
        for message, pages in sorted(on_pages().items())
    )
    return table(("Message", "Example in"), rows)
