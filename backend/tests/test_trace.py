"""What devices tell of their work: every kernel, in every launch mode."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.openreg.testing import trace

from _launched import check_complete, dispatched, recorded

F = nn.functional
openreg = torch.openreg
ATEN = Path(__file__).parents[1] / "csrc" / "aten"
launched_here = threading.get_native_id


def r(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to("openreg")


def learn(work: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> None:
    tensors = [r(*shape).requires_grad_() for shape in shapes]
    work(*tensors).sum().backward()


def cell(kind: type[nn.Module]) -> None:
    cells = kind(3, 4).to("openreg")
    state = cells(r(2, 3))
    (state[0] if isinstance(state, tuple) else state).sum().backward()


def optimize(kind: type[torch.optim.Optimizer], **options: object) -> None:
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


class TestNames:
    """A kernel's name is that of the operator that the dispatcher called."""

    @pytest.mark.filterwarnings("ignore:Sparse CSR")
    @pytest.mark.proves("trace-operator")
    @pytest.mark.parametrize("name", CALLS)
    def test_are_the_dispatchers(self, name: str, side) -> None:
        file = io.StringIO()
        CALLS[name]()  # what is made once for all is made
        with trace() as records, torch.openreg.show_calls(file):
            CALLS[name]()
            openreg.synchronize()
        check_complete(records)
        (sent,), (ran,) = dispatched(file).values(), recorded(records).values()
        assert ran == sent

    def test_in_the_source_are_operators(self) -> None:
        operators = set(torch._C._dispatch_get_all_op_names())
        sources = "".join(path.read_text() for path in ATEN.rglob("*.cpp"))
        names = set(re.findall(r'"(aten::\w+\.\w+)"', sources))
        assert names
        assert names <= operators

    def test_a_name_outlives_its_operator(self) -> None:
        library = torch.library.Library("trace_gone", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x.cumsum(0), "PrivateUse1")
        x = r(3)
        with trace() as records:
            torch.ops.trace_gone.twice(x)
            library._destroy()
        assert {record.name for record in records} == {"aten::cumsum"}


class TestTrainingStep:
    """A step of an MLP, against the list of what the dispatcher sent."""

    def steps(self, sides: bool) -> tuple[list, io.StringIO]:
        torch.manual_seed(0)
        layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)
        model = nn.Sequential(*layers).to("openreg")
        optimizer = torch.optim.AdamW(model.parameters())
        x, y = r(6, 8), torch.randint(4, (6,)).to("openreg")
        stream = openreg.Stream() if sides else openreg.default_stream()
        file = io.StringIO()
        with openreg.stream(stream):
            for step in range(2):  # the first one makes the optimizer's state
                openreg.synchronize()
                with trace() as records, torch.openreg.show_calls(file):
                    F.cross_entropy(model(x), y).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    openreg.synchronize()
                if step == 0:
                    file.seek(0)
                    file.truncate()
        return records, file

    @pytest.mark.proves("trace-every-kernel")
    @pytest.mark.parametrize("sides", [False, True], ids=["default", "side"])
    def test_every_kernel_is_recorded_once_and_in_order(self, sides) -> None:
        records, file = self.steps(sides)
        check_complete(records)
        (sent,), (ran,) = dispatched(file).values(), recorded(records).values()
        assert ran == sent
        # Forward, backward and optimizer: it is no short list.
        assert {"aten::addmm", "aten::mm", "aten::_log_softmax"} < set(ran)
        assert {"aten::threshold_backward", "aten::addcdiv_"} < set(ran)

    def test_names_the_thread_that_launched(self) -> None:
        records, _ = self.steps(sides=False)
        threads = {record.name: record.thread for record in records}
        assert threads["aten::addcdiv_"] == launched_here()
        assert threads["aten::threshold_backward"] != launched_here()


class TestKinds:
    def test_a_kernel_that_runs_here_takes_its_turn(self) -> None:
        x = r(3)
        with trace() as records:
            x.cumsum(0)
        assert {(x.kind, x.name) for x in records} == {("turn", "aten::cumsum")}

    @pytest.mark.queued
    def test_a_kernel_that_is_queued_is_a_kernel(self, side) -> None:
        x = r(3)
        with trace() as records:
            x + x
            side.synchronize()
        assert {record.kind for record in records} == {"kernel"}

    def test_a_turn_that_waits_begins_when_it_comes(self, side) -> None:
        x = r(3)
        openreg.testing.sleep(5)
        with trace() as records:
            openreg.testing.sleep(5)
            x.cumsum(0)
        check_complete(records)
        names = [record.name for record in records if record.phase == "end"]
        assert names == ["sleep", "aten::cumsum"]

    def test_a_kernel_that_raises_has_an_end(self) -> None:
        x, y = r(3), torch.tensor([5], device="openreg")
        with trace() as records, pytest.raises(IndexError):
            torch.nn.functional.nll_loss(x[None], y)
        check_complete(records)


class TestSeveral:
    """Traces know nothing of each other."""

    def test_each_has_what_was_launched_while_it_was_open(self) -> None:
        x = r(3)
        with trace() as outer:
            x + 1
            with trace() as inner:
                x * 2
                openreg.synchronize()
            x.cumsum(0)
            openreg.synchronize()
        for records in outer, inner:
            check_complete(records)
        names = [record.name for record in outer if record.phase == "launch"]
        assert names == ["aten::add.Tensor", "aten::mul.Tensor", "aten::cumsum"]
        launched = {record.work for record in inner}
        assert [x for x in outer if x.work in launched] == inner

    def test_they_come_and_go_while_threads_work(self, side) -> None:
        stop = threading.Event()
        failures = []

        def work() -> None:
            mine, x = openreg.Stream(), r(3)
            with openreg.stream(mine):
                while not stop.is_set():
                    x.add_(1).cumsum(0)

        def watch() -> None:
            try:
                for _ in range(40):
                    with trace() as records:
                        r(3) + 1
                        openreg.synchronize()
                    mine = [x for x in records if x.thread == launched_here()]
                    check_complete(mine)
                    assert "aten::add.Tensor" in {x.name for x in mine}
            except BaseException as error:
                failures.append(error)

        workers = [threading.Thread(target=work) for _ in range(2)]
        watchers = [threading.Thread(target=watch) for _ in range(2)]
        for thread in workers + watchers:
            thread.start()
        for thread in watchers:
            thread.join()
        stop.set()
        for thread in workers:
            thread.join()
        assert not failures
