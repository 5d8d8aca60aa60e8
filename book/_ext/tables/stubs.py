"""The tables of book/chapters/stubs.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import torch

from tables.common import code, table

READS = ("book/_ext/tables/stubs.txt",)

TORCH = Path(torch.__file__).parent
LIST = Path(__file__).with_name("stubs.txt")

# Where a header declares stubs that are not in at::native itself.
SPACES = {"ATen/native/CPUBlas.h": "cpublas::"}


class Served(NamedTuple):
    """A stub that this backend registers."""

    stub: str
    file: str  # where
    operators: str  # who ask it, found by a stub that throws its name


SERVED = [
    Served(
        "abs_stub",
        "pointwise.cpp",
        "abs abs.out abs_ isfinite isinf isinf.out",
    ),
    Served(
        "add_stub",
        "pointwise.cpp",
        "add.Scalar add.Scalar_out add.Tensor add.out add_.Scalar "
        "add_.Tensor sub.Scalar sub.Scalar_out sub.Tensor sub.out "
        "sub_.Scalar sub_.Tensor",
    ),
    Served(
        "mul_stub",
        "pointwise.cpp",
        "deg2rad deg2rad.out deg2rad_ mul.Scalar mul.Scalar_out "
        "mul.Tensor mul.out mul_.Scalar mul_.Tensor rad2deg rad2deg.out "
        "rad2deg_",
    ),
    Served(
        "div_true_stub",
        "pointwise.cpp",
        "div.Scalar div.Scalar_out div.Tensor div_.Scalar div_.Tensor "
        "true_divide.Scalar true_divide.Tensor true_divide_.Scalar "
        "true_divide_.Tensor",
    ),
    Served(
        "addcmul_stub",
        "pointwise.cpp",
        "addcmul_",
    ),
    Served(
        "addcdiv_stub",
        "pointwise.cpp",
        "addcdiv_",
    ),
    Served(
        "lerp_kernel_scalar_weight",
        "pointwise.cpp",
        "lerp_.Scalar",
    ),
    Served(
        "sqrt_stub",
        "pointwise.cpp",
        "sqrt",
    ),
    Served(
        "threshold_stub",
        "pointwise.cpp",
        "threshold_backward",
    ),
    Served(
        "clamp_min_scalar_stub",
        "pointwise.cpp",
        "relu relu.out relu_",
    ),
    Served(
        "_fused_sdp_choice_stub",
        "attention.cpp",
        "scaled_dot_product_attention",
    ),
]


def declared() -> dict[str, list[str]]:
    """Header -> the stubs that it declares, in the installed PyTorch."""
    found: dict[str, list[str]] = {}
    include = TORCH / "include"
    for path in sorted((include / "ATen").rglob("*.h")):
        header = path.relative_to(include).as_posix()
        text = re.sub(r"//.*", "", path.read_text("utf-8"))
        for match in re.finditer(r"^\s*DECLARE_DISPATCH\((.*)", text, re.M):
            # The last word before the bracket that closes the macro's.
            rest = text[match.start(1) :]
            depth, end = 1, 0
            while depth:
                depth += {"(": 1, ")": -1}.get(rest[end], 0)
                end += 1
            name = re.search(r"(\w+)\s*$", rest[: end - 1])
            if name:
                space = SPACES.get(header, "")
                found.setdefault(header, []).append(space + name[1])
    return found


def exported() -> set[str]:
    """The data that libtorch_cpu.so exports from at::native."""
    symbols = subprocess.run(
        ["nm", "-DC", "--defined-only", TORCH / "lib/libtorch_cpu.so"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return set(re.findall(r" [BD] at::native::([\w:]+)$", symbols, re.M))


def installed_stubs() -> dict[str, list[str]]:
    """Header -> the stubs that it declares and the library exports."""
    symbols = exported()
    both = {
        header: [name for name in names if name in symbols]
        for header, names in declared().items()
    }
    return {header: names for header, names in both.items() if names}


def listed_stubs() -> dict[str, list[str]]:
    """The same, as it was when this book was written: stubs.txt."""
    lines = LIST.read_text("utf-8").splitlines()
    return {
        header: names.split()
        for header, _, names in (line.partition(": ") for line in lines)
    }


def stub_list() -> str:
    """Every stub that a backend can register, by the header it needs."""
    return table(
        ("Header, below `ATen/native`", "Number", "Stubs"),
        (
            (
                f"`{header.removeprefix('ATen/native/')}`",
                str(len(names)),
                code(names),
            )
            for header, names in sorted(listed_stubs().items())
        ),
    )


def served_operators() -> str:
    """The stubs that this backend registers, and who asks them."""
    return table(
        ("Stub", "Registered in", "Operators"),
        (
            (f"`{row.stub}`", f"`{row.file}`", code(row.operators.split()))
            for row in SERVED
        ),
    )


if __name__ == "__main__":  # how stubs.txt is written
    LIST.write_text(
        "".join(
            f"{header}: {' '.join(names)}\n"
            for header, names in installed_stubs().items()
        ),
        "utf-8",
    )
