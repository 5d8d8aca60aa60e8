"""The names of kernels are those of the operators that the dispatcher calls."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from _launched import check_complete, dispatched, recorded
from _tensors import normal as r
from torch_openreg.openreg.testing import trace

F = nn.functional
openreg = torch.openreg
ATEN = Path(__file__).parents[1] / "csrc" / "aten"


def learn(work: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> None:
    tensors = [r(*shape).requires_grad_() for shape in shapes]
    work(*tensors).sum().backward()


def cell(kind: type[nn.Module]) -> None:
    cells = kind(3, 4).to("openreg")
    state = cells(r(2, 3))
    (state[0] if isinstance(state, tuple) else state).sum().backward()


def optimize(
    kind: Callable[..., torch.optim.Optimizer], **options: object
) -> None:
    weight = r(3).requires_grad_()
    optimizer = kind([weight], **options)
    for _ in range(2):
        weight.square().sum().backward()
        optimizer.step()


# Calls of the kernels that have a name of their own in the source.
CALLS: dict[str, Callable[[], object]] = {
    "functional": lambda: (r(3) + r(3), r(3) - 1, r(3) * 2, r(3) / r(3)),
    "in place": lambda: r(3).add_(1).sub_(r(3)).mul_(2).div_(2).relu_(),
    "out=": lambda: [
        f(r(3), r(3), out=torch.empty(3, device="openreg"))
        for f in (torch.add, torch.sub, torch.mul)
    ],
    "out= of an argument": lambda: torch.mul(r(3), 2, out=r(3)),
    "foreach": lambda: torch._foreach_mul_([r(3), r(2)], 2),
    "roots": lambda: (r(3).abs().sqrt(), r(3).relu()),
    "lerp": lambda: r(3).lerp_(r(3), 0.5),
    "addc": lambda: r(3).addcmul_(r(3), r(3)).addcdiv_(r(3), r(3)),
    "relu, backward": lambda: learn(torch.relu, (3,)),
    "products": lambda: (r(2, 3) @ r(3, 2), r(2, 2, 3) @ r(2, 3, 2)),
    "addmm": lambda: F.linear(r(2, 3), r(4, 3), r(4)),
    "sums": lambda: (r(3).sum(), r(3).softmax(0), r(3).log_softmax(0)),
    "index": lambda: (
        r(3).gather(0, torch.tensor([1]).to("openreg")),
        r(3).index_select(0, torch.tensor([1]).to("openreg")),
    ),
    "fills": lambda: (r(3).fill_(2), r(3).fill_(r()), r(3).zero_()),
    "item": lambda: r(1).item(),
    "convolution": lambda: learn(F.conv2d, (1, 2, 5, 5), (3, 2, 3, 3)),
    "LSTM": lambda: cell(nn.LSTMCell),
    "GRU": lambda: cell(nn.GRUCell),
    "attention": lambda: learn(
        F.scaled_dot_product_attention, *[(1, 2, 4, 8)] * 3
    ),
    "dropout": lambda: learn(F.dropout, (8,)),
    "sparse": lambda: torch.sparse.mm(
        r(3, 3).to_sparse_csr(), r(3, 2), reduce="amax"
    ),
    "alias": lambda: (r(3).cumsum(0), r(3).sort(), torch.sin(r(3), out=r(3))),
    "copies": lambda: (r(3).cpu(), r(2, 3).t().contiguous(), r(3).to("cpu")),
    "SGD": lambda: optimize(torch.optim.SGD, momentum=0.9),
    "Adam": lambda: optimize(torch.optim.Adam),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.proves("trace-operator")
@pytest.mark.parametrize("name", CALLS)
def test_names_are_the_dispatchers(name: str, side) -> None:
    file = io.StringIO()
    CALLS[name]()  # what is made once for all is made
    with trace() as records, torch.openreg.show_calls(file):
        CALLS[name]()
        openreg.synchronize()
    check_complete(records)
    (sent,), (ran,) = dispatched(file).values(), recorded(records).values()
    assert ran == sent


def test_names_in_the_source_are_operators() -> None:
    operators = set(torch._C._dispatch_get_all_op_names())
    sources = "".join(path.read_text() for path in ATEN.rglob("*.cpp"))
    names = set(re.findall(r'"(aten::\w+\.\w+)"', sources))
    assert names
    assert names <= operators


def test_a_name_outlives_its_operator() -> None:
    library = torch.library.Library("trace_gone", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.cumsum(0), "PrivateUse1")
    x = r(3)
    with trace() as records:
        torch.ops.trace_gone.twice(x)
        library._destroy()
    assert {record.name for record in records} == {"aten::cumsum"}
