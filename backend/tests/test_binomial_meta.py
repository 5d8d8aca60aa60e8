"""The meta function of the book, in C++ and in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from _fresh import prints

pytestmark = pytest.mark.one_mode

LOAD = """
    import sys
    sys.path[:0] = sys.argv[1:]
    from _extension import load
    load("binomial_meta")
"""


def test_pytorch_still_lacks_it() -> None:
    n, p = torch.ones(2, 3, device="meta")
    with pytest.raises(
        NotImplementedError, match="no fake impl or Meta kernel"
    ):
        torch.binomial(n, p)


def test_meta_tensors_and_fake_ones_get_the_shape_and_dtype() -> None:
    printed = prints(
        LOAD
        + """
    import torch
    from torch._subclasses import FakeTensorMode
    n, p = torch.ones(2, 3, 4, device="meta", dtype=torch.float64)
    print(torch.binomial(n.t(), p.t()).stride(), torch.binomial(n, p).dtype)
    with FakeTensorMode(allow_fallback_kernels=False):
        n, p = torch.ones(2, 3, device="openreg")
        print(torch.binomial(n, p))
    n, p = torch.ones(2, 3, device="openreg")
    print(torch.binomial(n, p).tolist())
    """,
        str(Path(__file__).parent),
    )
    assert printed.splitlines()[-3:] == [
        "(1, 4) torch.float64",
        "FakeTensor(..., device='openreg:0', size=(3,))",
        "[1.0, 1.0, 1.0]",
    ]
