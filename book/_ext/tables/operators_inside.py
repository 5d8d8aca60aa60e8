"""The tables of book/chapters/operators-inside.md."""

from __future__ import annotations

from typing import NamedTuple

from torch import _C

from tables.common import ROOT, table
from tables.dispatcher import REFUSED, is_boxed, with_choice
from tables.stubs import SERVED

READS = ("backend/csrc/aten/*",)

ATEN = ROOT / "backend" / "csrc" / "aten"


class Tier(NamedTuple):
    """A way to a kernel, and the files that are there for it."""

    way: str
    purpose: str
    files: str


TIERS = {
    "a": Tier(
        "[PyTorch's own kernel, addresses shifted](stubs.md#shifted-addresses)",
        "calls so short that the time of an alias shows",
        "pointwise.cpp",
    ),
    "b": Tier(
        "[a function with the operator's signature](#written-for-the-device)",
        "what PyTorch asks a backend to write, and what is queued",
        "attention.cpp convolution.cpp copy.cpp factory.cpp fill.cpp "
        "indexing.cpp matmul.cpp random.cpp recurrent.cpp reduction.cpp "
        "stream_use.cpp structured.h view.cpp",
    ),
    "c": Tier(
        "[one boxed function for all](#one-kernel-for-a-thousand-operators)",
        "everything else that the CPU has; sparse, quantized, nested",
        "boxed.cpp boxed.h nested.cpp outputs.cpp parts.cpp "
        "parts.h quantized.cpp sparse.cpp",
    ),
    "d": Tier(
        "[the fallback](fallback.md)",
        "operators of other libraries",
        "fallback.cpp fallback.h",
    ),
    "": Tier(
        "aliases and registration, for all; operators of our own",
        "",
        "alias.cpp alias.h custom.cpp kernels.h register.cpp registry.cpp "
        "registry.h",
    ),
}


def lines_of(tier: str) -> int:
    return sum(
        len((ATEN / file).read_text("utf-8").splitlines())
        for file in TIERS[tier].files.split()
    )


def tier_operators() -> dict[str, set[str]]:
    """Tier -> the operators of ATen that it serves, on dense tensors."""
    served = {f"aten::{n}" for row in SERVED for n in row.operators.split()}
    found: dict[str, set[str]] = {"a": set(), "b": set(), "c": set()}
    for name in _C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
        if name.startswith("aten::") and not name.startswith(REFUSED):
            if is_boxed(name, "PrivateUse1"):
                found["c"].add(name)
            else:
                found["a" if name in served else "b"].add(name)
    found["d"] = with_choice("PrivateUse1", "backend fallback") & with_choice(
        "CPU", "kernel"
    )
    return found


def tiers() -> str:
    """What each way to a kernel costs in lines, and how many it serves."""
    operators = tier_operators()
    return table(
        ("Tier", "Way", "For", "Lines", "Operators"),
        (
            (
                name,
                tier.way,
                tier.purpose,
                str(lines_of(name)),
                str(len(operators[name])) if name else "",
            )
            for name, tier in TIERS.items()
        ),
    )
