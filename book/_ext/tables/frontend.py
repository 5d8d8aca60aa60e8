"""The tables of book/chapters/frontend.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tables.common import table


class Lookup(NamedTuple):
    name: str
    files: str  # of PyTorch, that look the name up in the device module
    use: str  # what leads there
    without: str  # what it then answers, as it is; "..." for what is left out
    means: str


MISSING = "AttributeError: module 'torch_openreg.openreg' has no attribute "
NO_SEED = (
    "UserWarning: Set seed for `openreg` device does not take effect, please "
    "add API's `_is_in_bad_fork` and `manual_seed_all` to `openreg` device "
    "module."
)
LOOKUPS = [
    Lookup(
        "_lazy_init",
        "csrc/utils/device_lazy_init.h",
        "the first tensor on the device",
        "False",
        "`is_initialized()` stays false; seeds set early never arrive.",
    ),
    Lookup(
        "_initialized",
        "utils/checkpoint.py",
        "`torch.utils.checkpoint` around a dropout",
        "False",
        "The forward pass and its repetition drop different elements: "
        "the gradient is wrong, and nothing says so.",
    ),
    Lookup(
        "is_initialized",
        "_subclasses/fake_tensor.py",
        "a fake tensor on `openreg`",
        f"{MISSING}'is_initialized'",
        "",
    ),
    Lookup(
        "is_available",
        "accelerator/__init__.py _utils.py serialization.py autograd/graph.py",
        "`torch.accelerator.is_available()`",
        f"{MISSING}'is_available'",
        "",
    ),
    Lookup(
        "device_count",
        "accelerator/__init__.py random.py serialization.py _utils.py",
        "`torch.accelerator.device_count()`",
        f"{MISSING}'device_count'",
        "",
    ),
    Lookup(
        "current_device",
        "utils/backend_registration.py _utils.py _subclasses/fake_tensor.py",
        "`torch.ones(1).openreg()` inside `torch.openreg.device(1)`",
        "device(type='openreg', index=0)",
        "The tensor goes to device 0, whichever is current.",
    ),
    Lookup(
        "device",
        "_utils.py utils/checkpoint.py",
        "a storage's `.to(device)`",
        f"{MISSING}'device'",
        "",
    ),
    Lookup(
        "synchronize",
        "autograd/profiler.py",
        "the end of `torch.autograd.profiler.profile`",
        "0",
        "The profile ends while work may still run.",
    ),
    Lookup(
        "get_device_properties",
        "_utils.py",
        "`torch._utils._get_devices_properties`",
        f"{MISSING}'get_device_properties'",
        "",
    ),
    Lookup(
        "_is_in_bad_fork", "random.py", "`torch.manual_seed(1)`", NO_SEED, ""
    ),
    Lookup(
        "manual_seed_all",
        "random.py",
        "`torch.manual_seed(1)`",
        NO_SEED,
        "Two names, one warning: with either missing, no device is seeded.",
    ),
    Lookup(
        "get_rng_state",
        "random.py utils/checkpoint.py _functorch/_aot_autograd/utils.py",
        "`torch.random.fork_rng()`",
        f"{MISSING}'get_rng_state'",
        "",
    ),
    Lookup(
        "set_rng_state",
        "random.py utils/checkpoint.py",
        "the end of `torch.random.fork_rng()`",
        f"{MISSING}'set_rng_state'",
        "",
    ),
    Lookup(
        "default_generators",
        "_prims/rng_prims.py",
        "a random operator in a captured graph",
        "AssertionError: GraphSafe RNG operations not supported for device "
        "'openreg' (no torch.openreg.default_generators)",
        "",
    ),
    Lookup(
        "_get_generator",
        "_functorch/_aot_autograd/utils.py",
        "the same graph, traced by `torch.compile`",
        "AssertionError: Device type 'openreg' does not implement "
        "_get_generator. Registered graphsafe RNG types: ['cuda'].",
        "Asked of registered device types only.",
    ),
    Lookup(
        "get_amp_supported_dtype",
        "amp/autocast_mode.py",
        '`torch.autocast("openreg")`',
        "AssertionError: Tried to use AMP with the `openreg` backend, but the "
        "backend has not registered a module or ... "
        "But the func `get_amp_supported_dtype` is missing.",
        "",
    ),
    Lookup(
        "_utils",
        "serialization.py",
        '`torch.load(..., map_location="openreg:1")`',
        "device(type='openreg', index=1)",
        "Nothing is lost: without `_utils._get_device_index`, "
        "`torch.device` reads the location.",
    ),
    Lookup(
        "sparse",
        "_utils.py",
        "a sparse storage's `.to(device)`",
        "False",
        "No storage is sparse any more, so nobody gets there.",
    ),
    Lookup(
        "FloatStorage",
        "storage.py",
        "`Tensor.storage_type()`",
        "None",
        "These classes, one a dtype, are history; none is needed.",
    ),
]


def lookups() -> str:
    """What PyTorch looks up by name in the module of a device."""
    import torch

    def row(lookup: Lookup) -> tuple[str, ...]:
        absent = not hasattr(torch.openreg, lookup.name)
        who = lookup.files.replace("_", r"\_").replace(" ", "<br>")
        said = f"``{lookup.without}``{{.said}} " * (": " in lookup.without)
        seen = f"{lookup.use}: {said}{lookup.means}"
        return (
            f"`{lookup.name}`" + ", which openreg lacks" * absent,
            who,
            seen[0].upper() + seen[1:],
        )

    head = "Name", "Who looks it up, in `torch`", "What happens without it"
    return table(head, map(row, LOOKUPS))


# How PyTorch's files name the module of a device, and use a name of it.
HOLDER = (
    r"(?:\bdevice_mod(?:ule)?|custom_device_mod|device_handle|self\.__backend"
    r"|privateuse1_backend_module|lambda m: (?:list\(range\()?m"
    r"|getattr\(\s*torch, [\w.]+\)|get_device_module\([\w.]*\))"
)
LOOKED_UP = re.compile(
    rf"{HOLDER}\.([A-Za-z_]\w*)|(?:has|get)attr\(\s*{HOLDER}, [\"'](\w+)"
)


def find_lookups(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Name -> the PyTorch files that look it up in a device's module."""
    found: dict[str, list[Path]] = {}
    for file in sorted(files):
        for names in LOOKED_UP.findall(file.read_text("utf-8")):
            users = found.setdefault("".join(names), [])
            if file not in users:
                users.append(file)
    return found


def further_lookups() -> str:
    """The names that torch.distributed and torch.compile add to those."""
    import torch

    root = Path(torch.__file__).parent
    files = (root / folder for folder in ("distributed", "_dynamo"))
    found = find_lookups(file for f in files for file in f.rglob("*.py"))
    known = {lookup.name for lookup in LOOKUPS}
    rows = (
        (
            f"`{name}`",
            f"`torch/{users[0].relative_to(root)}`"
            + f" and {len(users) - 1} more" * (len(users) > 1),
            "yes" if hasattr(torch.openreg, name) else "not yet",
        )
        for name, users in sorted(found.items())
        if name not in known
    )
    return table(("Name", "Who looks it up", "`torch.openreg` has it"), rows)


def generated_methods() -> str:
    """What generate_methods_for_privateuse1_backend has added, and to whom."""
    import torch

    classes = (
        torch.Tensor,
        torch.nn.Module,
        torch.nn.utils.rnn.PackedSequence,
        torch.UntypedStorage,
        torch.TypedStorage,
    )
    meanings = {
        "openreg": "`.openreg(device=None)` copies to the device",
        "is_openreg": "`.is_openreg` tells whether it is there",
    }
    rows = (
        (
            f"`torch.{kind.__qualname__}`"
            if kind.__module__ == "torch"
            else f"`{kind.__module__}.{kind.__qualname__}`",
            *("yes" if hasattr(kind, name) else "no" for name in meanings),
        )
        for kind in classes
    )
    return table(("Class", *meanings.values()), rows)
