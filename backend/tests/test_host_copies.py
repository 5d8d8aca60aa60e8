"""Training leaves its data on the device: only what it must crosses over.

Counted twice: the bytes that the device library copies, by its own account,
and the operators that PyTorch calls with tensors on both sides.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from test_models import MODELS
from torch_openreg.openreg.testing import Record, trace

STEPS = 3


def copied(records: list[Record]) -> list[int]:
    """The bytes of each copy from or to the host, in order of launch."""
    return [
        r.bytes
        for r in records
        if (r.kind, r.phase) == ("copy", "launch") and "DtoD" not in r.name
    ]


class Crossings(TorchDispatchMode):
    """Collects the operators that had tensors on the host and the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        leaves: list[Any] = tree_leaves((args, kwargs, result))
        sides = {t.device.type for t in leaves if isinstance(t, torch.Tensor)}
        reads = func is torch.ops.aten._local_scalar_dense.default
        if len(sides) > 1 or (reads and "openreg" in sides):
            self.names.append(str(func))
        return result


def train(name: str) -> tuple[list[int], list[str], list[int]]:
    """Three steps; the bytes copied, the crossings, and what had to be."""
    make, shape = MODELS[name]
    net = make().to("openreg")
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(shape), torch.randint(0, 10, shape[:1])
    with trace() as records, Crossings() as crossings:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x.to("openreg")), y.to("openreg"))
            loss.backward()
            optimizer.step()
            loss.detach().cpu()
    return copied(records), crossings.names, [x.nbytes, y.nbytes, loss.nbytes]


@pytest.mark.proves("performance-no-copies")
@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "transformer"])
def test_only_inputs_and_loss_are_copied(name) -> None:
    with torch.openreg.fallback.forbid():
        bytes_copied, crossings, due = train(name)
    assert bytes_copied == due * STEPS
    assert crossings == ["aten._to_copy.default"] * len(due) * STEPS


def test_a_fallback_would_be_seen() -> None:
    library = torch.library.Library("openreg_copies_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    x = torch.ones(8, device="openreg")
    with trace() as records:
        torch.ops.openreg_copies_test.twice(x)
    library._destroy()
    assert copied(records) == [x.nbytes, x.nbytes]


def test_a_read_of_one_number_would_be_seen() -> None:
    x = torch.ones(2, device="openreg")
    with Crossings() as crossings:
        x.sum().item()
        x.add(torch.tensor(1.0))
        x.add(x)
    assert crossings.names == [
        "aten._local_scalar_dense.default",
        "aten.add.Tensor",
    ]
