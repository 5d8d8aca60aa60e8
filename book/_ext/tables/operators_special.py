"""The tables of book/chapters/operators-special.md."""

from __future__ import annotations

import inspect
import warnings
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from tables.common import table
from tables.operator_table import test_module


class Kind(NamedTuple):
    name: str
    made: str  # an expression of x, a 2x2 tensor of the device
    parts: str
    test: str  # in backend/tests


KINDS = [
    Kind(
        "sparse, COO",
        "x.to_sparse()",
        "indices and values",
        "test_sparse.py::test_every_layout_is_made_on_the_device",
    ),
    Kind(
        "sparse, compressed",
        "x.to_sparse_csr()",
        "two tensors of indices, and values",
        "test_sparse.py::test_every_layout_is_made_on_the_device",
    ),
    Kind(
        "quantized",
        "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
        "codes, and a quantizer that says what they mean",
        "test_quantized.py::test_codes_are_the_cpus",
    ),
    Kind(
        "nested, strided",
        "torch.nested.nested_tensor([x, x[:1]])",
        "one buffer; the shapes are on the host",
        "test_nested.py::test_made_taken_apart_and_copied",
    ),
    Kind(
        "nested, jagged",
        "torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged)",
        "a subclass in Python, of values and offsets",
        "test_nested.py::test_made_taken_apart_and_copied",
    ),
    Kind(
        "conjugate",
        "torch.view_as_complex(x).conj()",
        "its own memory, and a bit",
        "test_special.py::test_conjugate_and_negative_views_are_the_cpus",
    ),
    Kind(
        "channels last",
        "x.view(1, 2, 2, 1).to(memory_format=torch.channels_last)",
        "its own memory",
        "test_special.py::test_layouts_of_images_follow_the_cpus",
    ),
    Kind(
        "without elements",
        "x[:0]",
        "nothing",
        "test_special.py::test_few_or_no_elements",
    ),
]

# The keys of a backend's tensors, the one that decides first.
FUNCTIONALITIES = ("NestedTensor", "Quantized", "SparseCsr", "Sparse", "")


def make(kind: Kind) -> torch.Tensor:
    x = torch.ones(2, 2, device="openreg")
    with warnings.catch_warnings():
        # Sparse, quantized and nested tensors each warn of their state.
        warnings.simplefilter("ignore")
        return eval(kind.made, {"torch": torch, "x": x})


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
    rows = []
    for kind in KINDS:
        key = key_of(make(kind))
        count = str(kernels(key)) if key != "Python" else ""
        rows.append(
            (kind.name, kind.parts, f"`{key}`", count, f"`{kind.test}`")
        )
    return table(("Tensor", "Made of", "Key", "Kernels under it", "Test"), rows)


FORMS = ("foreach", "fused", "capturable")


def optimizers() -> dict[str, type[Optimizer]]:
    return {
        name: kind
        for name, kind in sorted(vars(torch.optim).items())
        if inspect.isclass(kind)
        and issubclass(kind, Optimizer)
        and kind is not Optimizer
    }


def accepts(kind: type[Optimizer], form: str) -> bool:
    """Whether an optimizer takes a step in this form on the device."""
    weight = torch.ones(2, device="openreg", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    try:
        kind([weight], lr=0.1, **{form: True}).step()
    except TypeError:
        return False
    return True


def optimizer_forms() -> str:
    return table(
        ("Optimizer", *(f"`{form}`" for form in FORMS)),
        (
            (f"`{name}`", *("yes" if accepts(kind, f) else "" for f in FORMS))
            for name, kind in optimizers().items()
        ),
    )


def wider_dtypes() -> str:
    """What the CPU's kernels lack and CUDA's have, and what runs instead."""
    found: dict[tuple[str, str], list[str]] = {}
    test_module("_operators")  # which the next one imports
    wider = test_module("wider")
    for row in wider.rows():
        if row.wider is None:
            way = "refused: the CPU has no kernel for any dtype"
        elif row.entry in wider.SUMS:
            way = "`sum` of what is not NaN"
        elif row.wider == row.dtype:
            way = "itself: the CPU's kernel takes it"
        else:
            way = f"`{str(row.wider)[6:]}`, rounded"
        key = (f"`{str(row.dtype)[6:]}`", way)
        found.setdefault(key, []).append(f"`{row.entry}`")
    return table(
        ("Dtype", "Computed in", "Entries of the database"),
        ((*key, ", ".join(names)) for key, names in sorted(found.items())),
    )
