"""The tables of book/chapters/amp.md."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

from tables.common import table


class Policy(NamedTuple):
    name: str
    macro: str  # in ATen/autocast_mode.h
    line: str


POLICIES = [
    Policy(
        "lower_precision_fp",
        "AT_FORALL_LOWER_PRECISION_FP",
        "Casts float tensors to the autocast dtype.",
    ),
    Policy(
        "fp32",
        "AT_FORALL_FP32",
        "Casts float tensors to float32.",
    ),
    Policy(
        "fp32_set_opt_dtype",
        "AT_FORALL_FP32_SET_OPT_DTYPE",
        "Asks the operator for a float32 result, unless the caller named a "
        "dtype.",
    ),
    Policy(
        "fp32_append_dtype",
        "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE",
        "The same for an overload without a dtype: calls the one that has it.",
    ),
    Policy(
        "promote",
        "AT_FORALL_PROMOTE",
        "Casts to the widest dtype among the arguments.",
    ),
]


def policy_operators(policy: Policy) -> list[str]:
    """The operators of a policy's list, read from PyTorch's header."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    header = Path(spec.origin).parent / "include/ATen/autocast_mode.h"
    text = header.read_text("utf-8").replace("\\\n", " ")
    found = re.search(rf"#define {policy.macro}\(_\)(.*)", text)
    assert found, policy.macro
    if "ADD_NS" in found[1]:
        return re.findall(r'"([\w.]+)"', found[1])
    names = re.findall(r"_\((\w+)(?:, (\w+))?\)", found[1])
    return [f"{name}.{over}" if over else name for name, over in names]


def autocast_policies() -> str:
    """Each cast policy with every operator that PyTorch lists for it."""
    return table(
        ("Policy", "What it does", "Operators"),
        (
            (
                f"`{policy.name}`",
                policy.line,
                " ".join(f"`{name}`" for name in policy_operators(policy)),
            )
            for policy in POLICIES
        ),
    )
