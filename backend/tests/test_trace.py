"""What devices tell of their work: every kernel, in every launch mode."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch
from torch import nn

from _launched import check_complete, dispatched, recorded
from _tensors import normal as r
from torch_openreg.openreg.testing import Record, trace

F = nn.functional
openreg = torch.openreg
launched_here = threading.get_native_id


class TestTrainingStep:
    """A step of an MLP, against the list of what the dispatcher sent."""

    def steps(self, sides: bool) -> tuple[list[Record], io.StringIO]:
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

    def test_they_come_and_go_while_threads_work(self) -> None:
        """One that is open all the time misses nothing of what others end.

        That none is told any more when it has ended, test_device_stream shows.
        """
        stop = threading.Event()

        def work() -> None:
            many = [r(3) for _ in range(400)]
            with openreg.stream(openreg.Stream()):
                while not stop.is_set():
                    torch._foreach_add_(many, 1)  # without Python's lock
                    many[0].cumsum(0)

        def watch() -> None:
            for _ in range(20):
                for _ in range(50):
                    with trace():
                        pass
                with trace() as records:
                    r(3) + 1
                    openreg.synchronize()
                mine = [x for x in records if x.thread == launched_here()]
                check_complete(mine)
                assert "aten::add.Tensor" in {x.name for x in mine}

        with trace() as records, ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work) for _ in range(2)]
            watching = [pool.submit(watch) for _ in range(2)]
            wait(watching)
            stop.set()
            for each in working + watching:
                each.result()
            openreg.synchronize()
        check_complete(records)
