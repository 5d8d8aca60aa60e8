"""A backend with a fault, for the doctor to find: openreg, then a change.

The variable FAULT names the change, a function below, or several with spaces
between; `FAULTS` has what the doctor must say of it. Imported without that
variable, it changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import torch_openreg  # noqa: F401
from torch_openreg import openreg

# A library's kernels go with it.
LIBRARY = torch.library.Library("aten", "IMPL")


def replace(operator: str, kernel: Callable[..., Any]) -> None:
    LIBRARY.impl(operator, kernel, "PrivateUse1", allow_override=True)


def copied(operator: str, view: Callable[..., torch.Tensor]) -> None:
    """A view operator whose result has memory of its own."""

    def kernel(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        return view(x.cpu(), *arguments).to(x.device)

    replace(operator, kernel)


def view_copies() -> None:
    copied("view", torch.Tensor.view)


def as_strided_copies() -> None:
    copied("as_strided", torch.Tensor.as_strided)


def unfold_copies() -> None:
    copied("unfold", torch.Tensor.unfold)


def view_as_real_copies() -> None:
    copied("view_as_real", torch.view_as_real)


def view_as_complex_copies() -> None:
    copied("view_as_complex", torch.view_as_complex)


def devices_mixed() -> None:
    """A product of tensors wherever they are."""
    replace("mm", lambda x, y: (x.cpu() @ y.cpu()).to("openreg"))


def gradient_wrong() -> None:
    """Of ReLU: its operands are exchanged."""

    def kernel(
        gradient: torch.Tensor, x: torch.Tensor, threshold: float
    ) -> torch.Tensor:
        there = gradient.device
        return (x.cpu() * (gradient.cpu() > threshold)).to(there)

    replace("threshold_backward", kernel)


def parameters_replaced() -> None:
    replace("_has_compatible_shallow_copy_type", lambda x, y: False)


def half_stays_half() -> None:
    """Autocast's list of operators for float32 without one of them."""
    LIBRARY.impl(
        "exp",
        torch.library.fallthrough_kernel,
        "AutocastPrivateUse1",
        allow_override=True,
    )


def seed_ignored() -> None:
    openreg.manual_seed_all = lambda seed: None


def state_ignored() -> None:
    openreg.set_rng_state = lambda *_: None


def dropout_not_replayed() -> None:
    torch.ones(1, device="openreg")  # which sets it
    del openreg._initialized


def wrong_device() -> None:
    openreg.current_device = lambda: 0


def unavailable() -> None:
    openreg.is_available = lambda: False


def loads_to_first_device() -> None:
    def place(storage: Any, location: str) -> Any:
        if location.startswith("openreg"):
            return storage.to(device=torch.device("openreg", 0))
        return None

    torch.serialization.register_package(0, lambda _: None, place)


def crashes() -> None:
    openreg.get_device_properties = lambda *_: os.abort()


def leaves() -> None:
    openreg.get_device_properties = lambda *_: os._exit(3)


def hangs() -> None:
    vars(openreg)["get_device_properties"] = lambda *_: time.sleep(600)


class Fault(NamedTuple):
    """A change, the rows to ask, and those of them that must not be right."""

    plant: Callable[[], None]
    asked: str
    found: dict[str, str]


WRONG, MISSING = "present but wrong", "missing"
ENDS = {"frontend.get_device_properties": WRONG}
AROUND = "frontend.device*,frontend.get_device_properties,frontend._is*"
MODULE = "frontend.*"
OPERATORS = """checklist.view*,checklist.as_strided,checklist._reshape_alias,\
checklist.unfold,checklist.autograd,checklist.comparison,checklist._has_*,\
checklist.fallback"""
PLACES = "storage.map_locations.*"


def found(name: str, *rows: str, as_: str = WRONG) -> dict[str, str]:
    return {f"{name}.{row}": as_ for row in rows}


FAULTS = {
    fault.plant.__name__: fault
    for fault in (
        Fault(view_copies, OPERATORS, found("checklist", "view")),
        Fault(
            as_strided_copies,
            OPERATORS,
            found("checklist", "as_strided", "_reshape_alias", "unfold"),
        ),
        Fault(unfold_copies, OPERATORS, found("checklist", "unfold")),
        Fault(
            view_as_real_copies, OPERATORS, found("checklist", "view_as_real")
        ),
        Fault(
            view_as_complex_copies,
            OPERATORS,
            found("checklist", "view_as_complex"),
        ),
        Fault(
            devices_mixed,
            OPERATORS,
            found("checklist", "comparison", as_=MISSING),
        ),
        Fault(gradient_wrong, OPERATORS, found("checklist", "autograd")),
        Fault(
            parameters_replaced,
            OPERATORS,
            found(
                "checklist", "_has_compatible_shallow_copy_type", as_=MISSING
            ),
        ),
        Fault(half_stays_half, "amp.*", found("amp.policies", "fp32")),
        Fault(
            seed_ignored,
            MODULE,
            found("frontend", "_lazy_init", "manual_seed_all"),
        ),
        Fault(
            state_ignored,
            MODULE,
            found("frontend", "set_rng_state")
            | found("frontend", "_initialized", as_=MISSING),
        ),
        Fault(
            dropout_not_replayed,
            "frontend._initialized,frontend.device_count",
            found("frontend", "_initialized", as_=MISSING),
        ),
        Fault(
            wrong_device,
            MODULE,
            found("frontend", "current_device", as_=MISSING),
        ),
        Fault(
            unavailable,
            MODULE,
            found("frontend", "is_available", "get_device_properties"),
        ),
        Fault(
            loads_to_first_device,
            PLACES,
            found(
                "storage.map_locations",
                "'openreg:1'",
                "torch.device('openreg', 1)",
                "{'openreg:0': 'openreg:1'}",
            ),
        ),
        Fault(crashes, AROUND, ENDS),
        Fault(leaves, AROUND, ENDS),
        Fault(hangs, AROUND, ENDS),
    )
}

# Those that do not hide each other.
TOGETHER = [
    " ".join(n for n, fault in FAULTS.items() if fault.asked == OPERATORS),
    "half_stays_half loads_to_first_device",
    "seed_ignored state_ignored wrong_device unavailable",
    "dropout_not_replayed crashes",
    "leaves",
    "hangs",
]

for fault in os.environ.get("FAULT", "").split():
    FAULTS[fault].plant()
