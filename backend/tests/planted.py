"""A backend with a fault, for the kit to find: openreg, then a change.

The variable FAULT names the change, a function below, or several with spaces
between; `FAULTS` has what the doctor must say of it, and `CONFORM` the
conformance kit. Imported without that variable, it changes nothing.

PLANTED_DRIVER names the library of planted.cpp, for the faults of a driver.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

DRIVER = os.environ.get("PLANTED_DRIVER")
if DRIVER:  # comes before the backend, so that this finds it first
    ctypes.CDLL(DRIVER, ctypes.RTLD_GLOBAL)
import torch_openreg  # noqa: E402, F401
from torch_openreg import openreg  # noqa: E402

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
    """A view has memory of its own."""
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


def strides_ignored() -> None:
    """Of `abs`: it takes its argument for contiguous."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        flat = x.as_strided((x.numel(),), (1,))
        return flat.cpu().abs().view(x.shape).to(x.device)

    replace("abs", kernel)


def out_not_written() -> None:
    """A sum is returned, and not written to `out=`."""

    def kernel(
        x: torch.Tensor, dim: int, *, dtype: Any = None, out: torch.Tensor
    ) -> torch.Tensor:
        return x.cpu().cumsum(dim).to(x.device)

    replace("cumsum.out", kernel)


def in_place_lost() -> None:
    """Of `exp_`: nothing is written."""
    replace("exp_", lambda x: x)


def dtype_not_converted() -> None:
    """Of a sum: it is of its argument's dtype."""

    def kernel(
        x: torch.Tensor, dim: Any, keep: bool = False, *, dtype: Any = None
    ) -> torch.Tensor:
        found = torch.ops.aten.sum.dim_IntList(x.cpu(), dim, keep, dtype=dtype)
        there: torch.Tensor = found.to(x.device, dtype or x.dtype)
        return there

    replace("sum.dim_IntList", kernel)


def index_clamped() -> None:
    """An index that is out of range takes the last element."""

    def kernel(
        x: torch.Tensor, dim: int, index: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        last = x.size(dim) - 1 if x.dim() else 0
        return x.cpu().gather(dim, index.cpu().clamp(0, last)).to(x.device)

    replace("gather", kernel)


def gradient_lost() -> None:
    """Of a sine: autograd passes it by."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return torch.sin(x)

    LIBRARY.impl("sin", kernel, "AutogradPrivateUse1", allow_override=True)


def statistics_lost() -> None:
    """Batch normalization does not count what it has seen."""

    def kernel(x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
        host: Any = (
            r.cpu() if isinstance(r, torch.Tensor) else r for r in rest
        )
        found = torch.native_batch_norm(x.cpu(), *host)
        return tuple(result.to(x.device) for result in found)

    replace("native_batch_norm", kernel)


def foreach_update_lost() -> None:
    """An optimizer's fused update leaves the last weight out."""

    def kernel(x: Any, other: Any, *, alpha: float = 1) -> None:
        for one, two in zip(x[:-1], other[:-1], strict=True):
            one.add_(two, alpha=alpha)

    replace("_foreach_add_.List", kernel)


def stream_ignored() -> None:
    """The default stream is always said to be the current one."""
    vars(torch.accelerator)["current_stream"] = openreg.default_stream


def record_stream_ignored() -> None:
    """Memory is given again while a stream reads it."""
    replace("record_stream", lambda x, stream: None)


def wait_ignored() -> None:
    """In the driver: a stream does not wait for an event."""
    assert DRIVER


def copy_out_of_order() -> None:
    """In the driver: a copy does not wait for the kernels of its stream."""
    assert DRIVER


def kernel_crashes() -> None:
    """Of `tan`: the process ends."""
    replace("tan", lambda x: os.abort())


def kernel_hangs() -> None:
    """Of `tanh`: it never returns."""
    replace("tanh", lambda x: time.sleep(600))


def half_stays_half() -> None:
    """Autocast's list of operators for float32 without one of them."""
    LIBRARY.impl(
        "exp",
        torch.library.fallthrough_kernel,
        "AutocastPrivateUse1",
        allow_override=True,
    )


def seed_ignored() -> None:
    """A seed reaches no generator."""
    openreg.manual_seed_all = lambda seed: None


def state_ignored() -> None:
    """A state that is set changes nothing."""
    openreg.set_rng_state = lambda *_: None


def dropout_not_replayed() -> None:
    """Checkpointing does not see that the device draws."""
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

# The row of the conformance kit that must find it.
CONFORM = {
    "view_copies": "view float32 forward",
    "strides_ignored": "abs float32 strided",
    "out_not_written": "cumsum float32 out",
    "in_place_lost": "exp float32 in-place",
    "dtype_not_converted": "sum bool forward",
    "index_clamped": "gather float32 error",
    "devices_mixed": "mm float32 mixed-devices",
    "gradient_wrong": "nn.functional.relu float32 gradient",
    "gradient_lost": "sin float32 gradient",
    "statistics_lost": "nn.functional.batch_norm float32 forward",
    "foreach_update_lost": "SGD float32 optimizer-foreach",
    "seed_ignored": "seeds random",
    "state_ignored": "state random",
    "dropout_not_replayed": "checkpoint random",
    "stream_ignored": "current stream",
    "record_stream_ignored": "record_stream allocator",
    "wait_ignored": "wait_event stream",
    "copy_out_of_order": "order stream",
    "kernel_crashes": "tan float32 forward",
    "kernel_hangs": "tanh float32 forward",
}
# They would hide others, or are the driver's.
ALONE = ("state_ignored", "stream_ignored", "wait_ignored", "copy_out_of_order")
LONG = ("kernel_hangs",)  # which costs its row the patience

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
    globals()[fault]()
