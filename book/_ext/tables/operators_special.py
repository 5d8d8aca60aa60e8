"""The table of book/chapters/operators-special.md."""

import warnings

import torch

from rows import Row
from tables.common import of_rows

# The keys of a backend's tensors, the one that decides first.
FUNCTIONALITIES = ("NestedTensor", "Quantized", "SparseCsr", "Sparse", "")


def make(row: Row) -> torch.Tensor:
    x = torch.ones(2, 2, device="openreg")
    with warnings.catch_warnings():
        # Sparse, quantized and nested tensors each warn of their state.
        warnings.simplefilter("ignore")
        made: torch.Tensor = eval(row.made, {"torch": torch, "x": x})
        return made


def key_of(tensor: torch.Tensor) -> str:
    """The key whose kernel is called for `tensor`."""
    keys = torch._C._dispatch_keys(tensor)
    if keys.has(torch._C.DispatchKey.Python):
        return "Python"
    names = (f"{kind}PrivateUse1" for kind in FUNCTIONALITIES)
    return next(n for n in names if keys.has(getattr(torch._C.DispatchKey, n)))


def kernels(key: str) -> int:
    return len(torch._C._dispatch_get_registrations_for_dispatch_key(key))


def special_kinds() -> str:
    def kernels_of(row: Row) -> str:
        key = key_of(make(row))
        return str(kernels(key)) if key != "Python" else ""

    return of_rows(
        "operators_special.kinds",
        dispatched=lambda row: key_of(make(row)),
        kernels=kernels_of,
    )
