"""The tables of book/chapters/storage.md."""

from __future__ import annotations

import io
from typing import NamedTuple

from tables.common import table


class Rule(NamedTuple):
    what: str
    here: str
    test: str  # in backend/tests
    cuda: str = ""  # where it is otherwise there


# What changes a storage, or which storage a tensor has.
CHANGES = [
    Rule(
        "`storage.resize_(n)`",
        "Another block, as many of the old bytes as fit. All tensors of the "
        "storage follow.",
        "test_storage.py::test_views_follow_their_storage_when_it_is_resized",
    ),
    Rule(
        "`storage.resize_(0)`",
        "The block is free; the tensors wait for another.",
        "test_storage.py::test_a_storage_resized_to_nothing_frees_its_memory",
    ),
    Rule(
        "`x.set_(storage, offset, size, stride)`",
        "`x` leaves its storage for another one of its device, which grows if "
        "it is too small.",
        "test_storage.py::test_set_gives_a_tensor_another_storage",
    ),
    Rule(
        "`x.data = y`",
        "`x` takes over shape, storage and device of `y`, and stays the same "
        "object.",
        "test_storage.py::test_data_may_come_from_the_other_side",
    ),
    Rule(
        "`module.to(device)`",
        "Parameters and their gradients stay the same objects, tied ones stay "
        "tied; buffers are new objects.",
        "test_storage.py::test_a_module_keeps_its_parameters_and_their_ties",
    ),
    Rule(
        "the same, with `set_overwrite_module_params_on_conversion`",
        "Every parameter is a new object, and ties are lost.",
        "test_storage.py::test_a_module_told_to_overwrite_gets_new_parameters",
    ),
    Rule(
        "the same, with `set_swap_module_params_on_conversion`",
        "As without, by exchanging the contents of two objects.",
        "test_storage.py::test_a_module_told_to_swap_keeps_its_parameters",
    ),
    Rule(
        "`load_state_dict(state)`",
        "The values are copied, across devices if need be.",
        "test_storage.py::test_loaded_state_is_copied_across_devices",
    ),
    Rule(
        "`load_state_dict(state, assign=True)`",
        "The parameters take the storages of `state`, on the device where "
        "they are.",
        "test_storage.py::test_assigned_state_is_the_modules_own",
    ),
    Rule(
        "`copy.deepcopy((x, x[1:]))`",
        "One new storage on the same device, for both.",
        "test_storage.py::"
        "test_a_deep_copy_keeps_what_shares_a_storage_together",
    ),
    Rule(
        "`storage.to(device=...)`, `storage.openreg()`, `storage.cpu()`",
        "A new storage there.",
        "test_storage.py::test_a_storage_moves_to_and_from_the_device",
    ),
    Rule(
        "`pickle.dumps(x)`",
        "The bytes, in the format of `torch.save`.",
        "test_storage.py::test_a_pickle_restores_device_strides_and_ties",
    ),
]


def storage_changes() -> str:
    """What changes a storage, and what changes a tensor's storage."""
    return table(
        ("Call", "What becomes of it", "Test"),
        ((rule.what, rule.here, f"`{rule.test}`") for rule in CHANGES),
    )


# For torch.load of a tensor that was saved on openreg:0.
MAP_LOCATIONS = {
    "None": "openreg:0",
    "'openreg:1'": "openreg:1",
    "'openreg'": "openreg:0",
    "'cpu'": "cpu",
    "torch.device('openreg', 1)": "openreg:1",
    "{'openreg:0': 'openreg:1'}": "openreg:1",
    "{'cuda:0': 'openreg:1'}": "openreg:0",
    "lambda storage, tag: storage": "cpu",
    "lambda storage, tag: storage.openreg(1)": "openreg:1",
    "lambda storage, tag: None": "openreg:0",
}
WHY = {
    "None": "the tag decides",
    "'openreg'": "the current device",
    "{'cuda:0': 'openreg:1'}": "no entry for the tag",
    "lambda storage, tag: storage": "where `torch.load` reads it",
    "lambda storage, tag: None": "the tag decides, when the function does not",
}


def arrival(map_location: str) -> str:
    """The device on which a tensor arrives, as `torch.load` puts it there."""
    import torch

    file = io.BytesIO()
    torch.save(torch.ones(1, device="openreg"), file)
    file.seek(0)
    where = eval(map_location, {"torch": torch})
    return str(torch.load(file, map_location=where).device)


def map_locations() -> str:
    """Where a tensor that was on openreg:0 arrives."""
    return table(
        ("`map_location`", "Arrives on", "Why"),
        (
            (f"`{where}`", f"`{arrival(where)}`", WHY.get(where, ""))
            for where in MAP_LOCATIONS
        ),
    )


SHARING = [
    Rule(
        "Order",
        "The sender waits for all work of the tensor's device. Its feeder "
        "thread cannot know on which stream you worked.",
        "test_sharing.py::test_pending_work_is_done_before_a_tensor_is_sent",
        "An event of the sending thread's current stream travels with the "
        "tensor, and the receiver's stream waits for it.",
    ),
    Rule(
        "What is mapped",
        "The segment of the pool, once for all storages in it.",
        "test_sharing.py::test_small_tensors_share_one_mapping_there",
        "The same.",
    ),
    Rule(
        "Capacity",
        "What is mapped takes addresses of the receiver's device, so it counts "
        "there too.",
        "test_sharing_device.py::"
        "test_opened_block_takes_addresses_until_it_is_closed",
        "Both processes use one device, and its memory counts once.",
    ),
    Rule(
        "Until when",
        "The block is not used again until the last process has let go.",
        "test_sharing.py::test_memory_is_not_reused_until_the_consumer_lets_go",
        "The same, by a counter in a file that all processes map.",
    ),
    Rule(
        "A receiver is killed",
        "It lets go, like one that ends.",
        "test_sharing.py::test_a_consumer_that_is_killed_lets_go",
        "Its count is never taken back: the block stays until the sender ends.",
    ),
    Rule(
        "The sender ends first",
        "The receiver keeps the memory.",
        "test_sharing.py::test_the_memory_outlives_its_producer",
        "The memory is gone; using it is undefined.",
    ),
    Rule(
        "Sent twice to one process",
        "One storage there, found by its place in the file.",
        "test_sharing.py::test_what_was_sent_twice_is_held_once_there",
        "The same.",
    ),
    Rule(
        "Sent on by the receiver",
        "An error: clone it first.",
        "test_sharing.py::test_what_came_from_another_process_is_not_sent_on",
        "The same.",
    ),
    Rule(
        "Resized after it was sent",
        "An error on either side, as for host memory that is shared.",
        "test_sharing.py::test_a_shared_storage_is_not_resized",
        "The sender's storage moves away, silently.",
    ),
    Rule(
        "A forked process",
        "An error that says to use spawn.",
        "test_sharing.py::"
        "test_a_process_started_by_fork_cannot_use_what_it_inherits",
        "The same.",
    ),
    Rule(
        "`is_shared()`, `share_memory_()`",
        "True, and nothing to do: a device's memory can always be shared.",
        "test_sharing.py::test_a_device_tensor_is_always_shared",
        "The same.",
    ),
    Rule(
        "Conjugate and negative views",
        "Arrive as they are.",
        "test_sharing.py::test_conjugate_and_negative_bits_arrive",
        "The bit is lost, as with host memory (torch 2.13).",
    ),
]


def sharing_rules() -> str:
    """How storages behave between processes, here and with CUDA."""
    return table(
        ("Subject", "Here", "With CUDA", "Test"),
        ((r.what, r.here, r.cuda, f"`{r.test}`") for r in SHARING),
    )


DLPACK = [
    Rule(
        "`from_dlpack(to_dlpack(x))`, `from_dlpack(x.__dlpack__())`",
        "The same memory, on the same device.",
        "test_dlpack.py::test_a_capsule_is_the_same_memory",
    ),
    Rule(
        '`from_dlpack(array, device="openreg:1")`',
        "A copy of a host array on the device.",
        "test_dlpack.py::test_a_host_array_is_copied_to_the_device",
    ),
    Rule(
        "`x.__dlpack__(dl_device=(kDLCPU, 0))`",
        "A copy on the host, which any library can read.",
        "test_dlpack.py::test_a_capsule_for_the_host_is_a_copy",
    ),
    Rule(
        "`from_dlpack(x)`, `x.__dlpack_device__()`",
        "`ValueError: Unknown device type openreg for Dlpack`",
        "test_dlpack.py::test_pytorch_does_not_say_the_device_of_a_tensor",
    ),
    Rule(
        "`numpy.from_dlpack(...)`",
        "NumPy's `RuntimeError: Unsupported device in DLTensor.`",
        "test_dlpack.py::test_a_library_without_the_device_takes_nothing",
    ),
]


def dlpack() -> str:
    """What DLPack does with a device of ours."""
    return table(
        ("Call", "Result", "Test"),
        ((rule.what, rule.here, f"`{rule.test}`") for rule in DLPACK),
    )


# Where a backend may keep a fact about a tensor, in the columns' order.
PLACES = "BackendMeta", "StorageImpl", "TensorImpl", "subclass"


class Survival(NamedTuple):
    what: str  # what happens to the tensor
    code: str  # the same for the test: x becomes ...
    kept: str  # a letter for each place, y or n, in the order of PLACES


SURVIVALS = [
    Survival("`x.add_(1)`", "x.add_(1)", "yyyy"),
    Survival("`x.detach()`", "x.detach()", "yyyy"),
    Survival("`x.data`", "x.data", "yyyy"),
    Survival("`torch.nn.Parameter(x)`", "torch.nn.Parameter(x)", "yyyy"),
    Survival("`x[:1]`, `x.t()`, any view", "x.t()", "nyny"),
    Survival("`y.set_(x)`", "new().set_(x)", "nynn"),
    Survival("`y.data = x`", "assign_data(x)", "yynn"),
    Survival("`x + 1`, a new tensor", "x + 1", "nnny"),
    Survival("`x.clone()`", "x.clone()", "nnny"),
    Survival('`x.to("openreg:1")`', "x.to('openreg:1')", "nnny"),
    Survival('`Module.to("openreg:1")`', "moved(x)", "nnny"),
    Survival("`copy.deepcopy(x)`", "copy.deepcopy(x)", "nnny"),
    Survival("`pickle`", "pickle.loads(pickle.dumps(x))", "ynny"),
    Survival("`torch.save`, `torch.load`", "loaded(x)", "ynny"),
    Survival(
        '`torch.load(..., map_location="cpu")`', "loaded(x, 'cpu')", "nnny"
    ),
    Survival("to another process", "sent(x)", "nnny"),
]


def survivals() -> str:
    """Which place keeps its fact through what."""
    words = {"y": "kept", "n": "-"}
    heads = (
        "`c10::BackendMeta`",
        "`c10::StorageImpl` of your own",
        "`c10::TensorImpl` of your own",
        "`torch.Tensor` subclass in Python",
    )
    return table(
        ("What becomes of `x`", *heads),
        ((s.what, *(words[letter] for letter in s.kept)) for s in SURVIVALS),
    )
