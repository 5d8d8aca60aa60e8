"""The tables of book/chapters/hooks.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


class Hook(NamedTuple):
    method: str
    answers: str
    scenario: str  # who asks, and when (torch 2.13)
    region: str
    test: str  # file::function in backend/tests; reaches it through PyTorch


HOOKS_HIGH = [
    Hook(
        "init",
        "Brings the backend up, or says why it cannot.",
        "Once a process, before the core first needs the device: for a "
        "generator, for pinned memory, from the module's `_lazy_init`.",
        "hooks-init",
        "test_runtime.py::test_without_devices_only_their_use_fails",
    ),
    Hook(
        "hasPrimaryContext",
        "Whether the device with this index is live.",
        "`backward()` notes the current stream of each live device, to wait "
        "for it at the end. `False` for all: it waits for none.",
        "hooks-primary-context",
        "test_hooks.py::"
        "test_has_primary_context_lets_backward_run_on_every_device",
    ),
    Hook(
        "getDefaultGenerator",
        "The generator of a device; -1 means the current one.",
        "`at::manual_seed`, also from TorchScript; "
        "`torch.openreg.default_generators`.",
        "hooks-default-generator",
        "test_hooks.py::test_default_generator_is_what_a_device_draws_from",
    ),
    Hook(
        "getNewGenerator",
        "A generator that nobody else has.",
        '`torch.Generator(device="openreg")`.',
        "hooks-new-generator",
        "test_hooks.py::test_new_generator_is_of_the_device_asked_for",
    ),
    Hook(
        "getDeviceFromPtr",
        "The device whose memory lies at this address.",
        "Memory that comes from outside: `at::from_blob`, a DLPack capsule.",
        "hooks-device-from-ptr",
        "test_hooks.py::test_device_from_ptr_finds_the_device_of_an_address",
    ),
    Hook(
        "getPinnedMemoryAllocator",
        "The allocator of host memory that the device can reach.",
        "`pin_memory=True` in factories, `Tensor.pin_memory()`, "
        "`DataLoader(pin_memory=True)`.",
        "hooks-pinned",
        "test_hooks.py::test_pinned_memory_allocator_and_is_pinned",
    ),
    Hook(
        "isPinnedPtr",
        "Whether host memory at this address is pinned; interior too.",
        "`Tensor.is_pinned()`; `Tensor.pin_memory()`, which copies only what "
        "is not.",
        "hooks-pinned",
        "test_hooks.py::test_pinned_memory_allocator_and_is_pinned",
    ),
]
HOOKS_LOW = [
    Hook(
        "isBuilt",
        "Whether the backend is in this build. Never raises.",
        "Nobody asks a PrivateUse1 backend by itself; device-generic C++ may.",
        "hooks-available",
        "test_hooks.py::test_is_built",
    ),
    Hook(
        "isAvailable",
        "Whether there is a device to use. Never raises, and wakes nothing.",
        "The core's `getAccelerator(checked=true)`.",
        "hooks-available",
        "test_hooks.py::test_is_available_makes_openreg_the_accelerator",
    ),
    Hook(
        "deviceCount",
        "How many devices there are.",
        "`at::manual_seed`, `backward()`.",
        "hooks-device",
        "test_hooks.py::test_device_count",
    ),
    Hook(
        "setCurrentDevice",
        "Makes a device current for this thread.",
        "Device-generic C++ through the hooks.",
        "hooks-device",
        "test_hooks.py::test_set_and_get_current_device",
    ),
    Hook(
        "getCurrentDevice",
        "This thread's current device.",
        "Device-generic C++ through the hooks.",
        "hooks-device",
        "test_hooks.py::test_set_and_get_current_device",
    ),
    Hook(
        "exchangeDevice",
        "Makes a device current; returns the one that was.",
        "Device-generic C++ that means to go back.",
        "hooks-device",
        "test_hooks.py::test_exchange_device",
    ),
    Hook(
        "maybeExchangeDevice",
        "The same; a negative index changes nothing and returns -1.",
        "The way back, when there may have been no device to come from.",
        "hooks-device",
        "test_hooks.py::test_maybe_exchange_device",
    ),
]
HOOKS_OWN = [
    Hook(
        "resizePrivateUse1Bytes",
        "Gives a storage another size and keeps its bytes.",
        "`UntypedStorage.resize_()`.",
        "hooks-resize",
        "test_hooks.py::test_resize_keeps_the_bytes_that_fit",
    ),
]


def hook_table(hooks: list[Hook]) -> str:
    return table(
        ("Method", "What it answers", "Who asks", "Test"),
        (
            (
                f"[`{hook.method}`](#{hook.region})",
                hook.answers,
                hook.scenario,
                f"`{hook.test}`{{.said}}",
            )
            for hook in hooks
        ),
    )


def hooks_high() -> str:
    """The hooks that everyday programs come to need."""
    return hook_table(HOOKS_HIGH)


def hooks_low() -> str:
    """The hooks that PyTorch reaches another way, through the guard."""
    return hook_table(HOOKS_LOW)


def hooks_own() -> str:
    """The hook that only PrivateUse1 has."""
    return hook_table(HOOKS_OWN)
