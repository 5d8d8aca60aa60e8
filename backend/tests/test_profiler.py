"""What torch.profiler knows of the device: rows, arrows, sums, limits."""

from __future__ import annotations

import io
import json
import re
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function
from torch.profiler._trace_validator import validate_trace

import _fresh
from _launched import dispatched
from _tensors import normal as r
from torch_openreg.openreg.testing import Gate, sleep, trace

openreg = torch.openreg
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
Experimental = torch._C._profiler._ExperimentalConfig
Event = dict[str, Any]


def profiled(work: Callable[[], object], **options: Any) -> profile:
    """The profile of `work` and of all that it has launched."""
    with profile(activities=BOTH, **options) as found:
        work()
        torch.accelerator.synchronize()
    return found


def on_device(found: profile) -> list[Any]:
    """The kernels, copies and fills of a profile."""
    return [
        event
        for event in found.events()
        if event.device_type == DeviceType.PrivateUse1
        and not event.is_user_annotation
    ]


@pytest.fixture
def chrome(tmp_path: Path) -> Callable[[profile], list[Event]]:
    """Reads what a profile exports, after PyTorch's own check of it."""

    def read(found: profile) -> list[Event]:
        path = tmp_path / "trace.json"
        found.export_chrome_trace(str(path))
        assert validate_trace(str(path)) == (True, [])
        events: list[Event] = json.loads(path.read_text())["traceEvents"]
        return events

    return read


def of(events: list[Event], category: str, phase: str = "X") -> list[Event]:
    return [e for e in events if e.get("cat") == category and e["ph"] == phase]


def inside(inner: Event, outer: Event, slack: float = 0.0) -> bool:
    return (
        (inner["pid"], inner["tid"]) == (outer["pid"], outer["tid"])
        and outer["ts"] - slack <= inner["ts"]
        and inner["ts"] <= outer["ts"] + outer["dur"] + slack
    )


class Step:
    """A training step whose optimizer has its state."""

    def __init__(self, device: str = "openreg") -> None:
        torch.manual_seed(0)
        layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.x = r(6, 8, device=device)
        self.y = torch.randint(4, (6,)).to(device)
        self()

    def __call__(self) -> None:
        scores = self.model(self.x)
        nn.functional.cross_entropy(scores, self.y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class TestKernels:
    """A training step, against what the dispatcher sent and the device did."""

    @pytest.mark.proves(
        "profiler-every-kernel", "checklist.REGISTER_PRIVATEUSE1_PROFILER"
    )
    def test_each_that_the_dispatcher_sent_is_there_once(self, side) -> None:
        step, file = Step(), io.StringIO()
        openreg.synchronize()
        with torch.openreg.show_calls(file):
            found = profiled(step)
        (sent,) = dispatched(file).values()
        rows = sorted(on_device(found), key=lambda row: row.time_range.start)
        assert [row.name for row in rows] == sent

    @pytest.mark.proves("profiler-sums")
    def test_their_times_are_the_devices(self) -> None:
        step = Step()
        with trace() as records:
            found = profiled(step)
        times: dict[int, int] = defaultdict(int)
        for record in records:
            times[record.work] += {"start": -1, "end": 1}.get(
                record.phase, 0
            ) * record.time_ns
        rows = on_device(found)
        told = sorted(round(1000 * row.time_range.elapsed_us()) for row in rows)
        assert told == sorted(times.values())
        # An operator's own time is that of the kernels that it launched.
        own = sum(
            row.self_device_time_total
            for row in found.key_averages()
            if row.device_type == DeviceType.CPU
        )
        assert round(1000 * own) == sum(told)

    @pytest.mark.proves(
        "profiler.session.pushCorrelationId",
        "profiler.session.popCorrelationId",
        "profiler.session.pushUserCorrelationId",
        "profiler.session.popUserCorrelationId",
    )
    def test_belong_to_operators_and_ranges(self) -> None:
        x = r(4, 4)

        def work() -> None:
            with record_function("outer"):
                x.add(1)
                with record_function("inner"):
                    x.mul(2)
            x.sub(3)

        found = profiled(work)
        rows = {row.name: row for row in on_device(found)}
        assert set(rows) == {"aten::add.Tensor", "aten::mul.Tensor",
                             "aten::sub.Tensor"}  # fmt: skip
        took = {name: row.time_range.elapsed_us() for name, row in rows.items()}
        means = {
            row.key: row
            for row in found.key_averages()
            if row.device_type == DeviceType.CPU
        }
        for name in "add", "mul", "sub":
            mean, row = means[f"aten::{name}"], took[f"aten::{name}.Tensor"]
            assert mean.device_time_total == pytest.approx(row)
        assert means["inner"].device_time_total == pytest.approx(
            took["aten::mul.Tensor"]
        )
        assert means["outer"].device_time_total == pytest.approx(
            took["aten::add.Tensor"] + took["aten::mul.Tensor"]
        )

    def test_that_no_operator_launched_belong_to_the_range(self) -> None:
        def work() -> None:
            with record_function("pause"):
                sleep(1)

        means = {row.key: row for row in profiled(work).key_averages()}
        assert means["pause"].device_time_total >= 1000

    @pytest.mark.queued
    def test_of_a_graph_belong_to_the_range_that_replays_it(self, side) -> None:
        gate, x, graph = Gate(), r(3), torch.accelerator.Graph()
        openreg.synchronize()
        with graph:
            x.add_(1)
            x.mul_(2)
        with profile(activities=BOTH) as found:
            gate.hold()
            with record_function("replay"):
                graph.replay()
            x.sub_(3)
            gate.open()
        times = {
            row.name: row.time_range.elapsed_us() for row in on_device(found)
        }
        del times["aten::sub_.Tensor"]
        (replay,) = [
            row.device_time_total
            for row in found.key_averages()
            if row.key == "replay" and row.device_type == DeviceType.CPU
        ]
        assert len(times) == 2
        assert replay == pytest.approx(sum(times.values()))

    def test_outside_of_all_have_rows_too(self) -> None:
        (row,) = on_device(profiled(lambda: sleep(1)))
        assert row.name == "sleep"
        assert row.linked_correlation_id == 0

    @pytest.mark.queued
    def test_take_the_devices_time_not_the_hosts(self, side) -> None:
        gate, x = Gate(), r(3)
        with profile(activities=BOTH) as found:
            gate.hold()
            x.add(1)
            gate.open()
        (row,) = on_device(found)
        (op,) = [e for e in found.events() if e.name == "aten::add"]
        assert row.time_range.start >= op.time_range.start
        assert op.device_time_total == pytest.approx(
            row.time_range.elapsed_us()
        )

    def test_of_the_backward_pass_belong_to_its_operators(self, chrome) -> None:
        step = Step()
        found = profiled(step)
        (grad,) = [
            e
            for e in found.events()
            if e.name == "aten::threshold_backward" and e.kernels
        ]
        assert [k.name for k in grad.kernels] == ["aten::threshold_backward"]
        assert grad.thread != found.events()[0].thread
        assert of(chrome(found), "fwdbwd", "s")


class TestTrace:
    """What export_chrome_trace writes."""

    @pytest.mark.proves(
        "profiler.session.processTrace", "profiler.session.getTraceBuffer"
    )
    def test_every_kernel_has_a_call_and_an_arrow(self, chrome, side) -> None:
        events = chrome(profiled(Step()))
        calls = {
            e["args"]["correlation"]: e
            for e in of(events, "privateuse1_runtime")
        }
        kernels = of(events, "kernel")
        begins = {e["id"]: e for e in of(events, "ac2g", "s")}
        ends = {e["id"]: e for e in of(events, "ac2g", "f")}
        assert len(kernels) == len(ends) > 20
        assert set(ends) == set(begins)
        operators = {e["args"]["External id"]: e for e in of(events, "cpu_op")}
        arrows = {(e["pid"], e["tid"], e["ts"]): e["id"] for e in ends.values()}
        for kernel in kernels:
            call = calls[kernel["args"]["correlation"]]
            arrow = arrows[kernel["pid"], kernel["tid"], kernel["ts"]]
            assert inside(begins[arrow], call)
            assert call["ts"] <= kernel["ts"]
            operator = operators[kernel["args"]["External id"]]
            assert operator["tid"] == call["tid"]
            assert kernel["name"].split(".")[0] == operator["name"]

    @pytest.mark.proves(
        "profiler.session.getDeviceInfo", "profiler.session.getResourceInfos"
    )
    def test_rows_are_named_by_device_and_stream(self, chrome) -> None:
        other = openreg.Stream("openreg:1")

        def work() -> None:
            r(3).add(1)
            with openreg.stream(other):
                r(3, device="openreg:1").add(1)
                other.synchronize()

        events = chrome(profiled(work))
        processes = {
            e["pid"]: e["args"]["name"]
            for e in events
            if e["name"] == "process_name"
        }
        assert processes[0] == "openreg:0"
        assert processes[1] == "openreg:1"
        streams = {
            (e["pid"], e["tid"]): e["args"]["name"]
            for e in events
            if e["name"] == "thread_name"
        }
        places = {(e["pid"], e["tid"]) for e in of(events, "kernel")}
        assert {pid for pid, _ in places} == {0, 1}
        assert streams[0, 0] == "default stream"
        (stream,) = [tid for pid, tid in places if pid == 1]
        assert streams[1, stream] == f"stream {stream}"

    def test_copies_say_from_where_to_where_and_how_much(self, chrome) -> None:
        host, pinned, x = torch.ones(4), torch.ones(4).pin_memory(), r(4)

        def work() -> None:
            x.copy_(host)
            x.copy_(pinned, non_blocking=True)
            pinned.copy_(x)
            host.copy_(x)

        copies = of(chrome(profiled(work)), "gpu_memcpy")
        assert [e["name"] for e in sorted(copies, key=lambda e: e["ts"])] == [
            "Memcpy HtoD (Pageable -> Device)",
            "Memcpy HtoD (Pinned -> Device)",
            "Memcpy DtoH (Device -> Pinned)",
            "Memcpy DtoH (Device -> Pageable)",
        ]
        assert {e["args"]["bytes"] for e in copies} == {16}

    def test_copies_of_devices_and_zeros_have_bytes(self, chrome) -> None:
        x, there = r(4), r(4).to("openreg:1")

        def work() -> None:
            x.clone()
            there.copy_(x)
            x.zero_()

        events = chrome(profiled(work))
        found = [*of(events, "gpu_memcpy"), *of(events, "gpu_memset")]
        assert [(e["name"], e["args"]["bytes"]) for e in found] == [
            ("Memcpy DtoD (Device -> Device)", 16),
            ("Memcpy DtoD (Device -> Device)", 16),
            ("Memset (Device)", 16),
        ]

    def test_waits_of_the_host_are_calls(self, chrome) -> None:
        stream = openreg.Stream()
        event = openreg.Event()

        def work() -> None:
            with openreg.stream(stream):
                r(3).add(1)
            event.record(stream)
            event.synchronize()
            stream.synchronize()
            torch.accelerator.synchronize()

        events = chrome(profiled(work))
        waits = {
            e["name"]: e
            for e in of(events, "privateuse1_runtime")
            if "Synchronize" in e["name"]
        }
        assert set(waits) == {
            "orEventSynchronize", "orStreamSynchronize", "orDeviceSynchronize"
        }  # fmt: skip
        assert waits["orStreamSynchronize"]["args"]["stream"] > 0
        assert {e["tid"] for e in waits.values()} == {threading.get_native_id()}

    @pytest.mark.queued
    def test_a_wait_takes_as_long_as_the_host_waited(
        self, chrome, side
    ) -> None:
        def work() -> None:
            sleep(2)
            side.synchronize()

        events = chrome(profiled(work))
        (wait,) = [
            e
            for e in of(events, "privateuse1_runtime")
            if e["name"] == "orStreamSynchronize"
        ]
        (slept,) = of(events, "kernel")
        assert wait["ts"] + wait["dur"] >= slept["ts"] + slept["dur"]

    def test_threads_have_rows_of_their_own(self, chrome) -> None:
        def launch() -> None:
            numbers.append(threading.get_native_id())
            with openreg.stream(openreg.Stream()):
                r(3).add(1)
                openreg.current_stream().synchronize()

        numbers: list[int] = []
        threads = [threading.Thread(target=launch) for _ in range(2)]

        def work() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        events = chrome(profiled(work))
        calls = of(events, "privateuse1_runtime")
        assert set(numbers) <= {e["tid"] for e in calls}
        assert len({e["tid"] for e in of(events, "kernel")}) == 2

    def test_ranges_span_what_ran_in_them_on_a_stream(self, chrome) -> None:
        x = r(3)

        def work() -> None:
            with record_function("range"):
                x.add(1).mul(2)

        events = chrome(profiled(work))
        (span,) = of(events, "gpu_user_annotation")
        assert span["name"] == "range"
        assert all(inside(e, span, 1.5) for e in of(events, "kernel"))


class TestOptions:
    """Every way into the profiler that PyTorch documents."""

    def test_the_host_alone_has_no_rows_of_the_device(self) -> None:
        with profile(activities=[ProfilerActivity.CPU]) as found:
            r(3).add(1)
        assert not on_device(found)

    def test_the_device_alone_has_no_operators(self) -> None:
        with profile(activities=[ProfilerActivity.PrivateUse1]) as found:
            r(3).add(1)
            openreg.synchronize()
        assert "aten::add.Tensor" in {row.name for row in on_device(found)}
        assert "aten::add" not in {event.name for event in found.events()}

    def test_a_filter_leaves_out_what_was_not_asked_for(self) -> None:
        x = r(3)
        chosen = {ProfilerActivity.PrivateUse1: ["GPU_MEMCPY"]}
        with profile(activities=[ProfilerActivity.CPU, chosen]) as found:
            x.add(1)
            x.cpu()
        assert {row.name for row in on_device(found)} == {
            "Memcpy DtoH (Device -> Pageable)"
        }

    @pytest.mark.proves("profiler.session.start", "profiler.session.stop")
    @pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
    def test_a_schedule_starts_and_ends_it(self) -> None:
        x, seen = r(3), []
        plan = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
        with profile(
            activities=BOTH,
            schedule=plan,
            on_trace_ready=lambda p: seen.append(
                Counter(row.name for row in on_device(p))
            ),
        ) as found:
            for _ in range(8):
                x.add(1)
                found.step()
        assert seen == [Counter({"aten::add.Tensor": 2})] * 2

    def test_shapes_stacks_flops_and_memory(self) -> None:
        a, b = r(16, 32), r(32, 8)
        found = profiled(
            lambda: a @ b,
            record_shapes=True,
            with_stack=True,
            experimental_config=Experimental(verbose=True),
            with_flops=True,
            profile_memory=True,
        )
        (mm,) = [e for e in found.events() if e.name == "aten::mm" and e.flops]
        assert mm.flops == 2 * 16 * 32 * 8
        assert mm.input_shapes[:2] == [[16, 32], [32, 8]]
        assert mm.self_device_memory_usage == 16 * 8 * 4
        assert any("test_profiler" in line for line in mm.stack)
        table = found.key_averages(group_by_stack_n=3).table()
        assert "Self OPENREG" in table

    @pytest.mark.parametrize("every", [False, True])
    def test_other_threads_have_operators_if_asked_for(
        self, chrome, every: bool
    ) -> None:
        x = r(3)

        def launch() -> None:
            with openreg.stream(openreg.Stream()), record_function("range"):
                x.add(1)
                openreg.current_stream().synchronize()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(launch).result()  # so it runs before the profile
            found = profiled(
                lambda: pool.submit(launch).result(),
                experimental_config=Experimental(profile_all_threads=every),
            )
        (kernel,) = of(chrome(found), "kernel")
        took = {
            row.key: row.device_time_total
            for row in found.key_averages()
            if row.device_type == DeviceType.CPU
        }
        assert ("External id" in kernel["args"]) == every
        assert ("aten::add" in took) == every
        for name in ("aten::add", "range") if every else ():
            assert took[name] == pytest.approx(kernel["dur"])

    def test_each_thread_is_in_a_range_of_its_own(self, chrome) -> None:
        """The second enters its range while the first is in another."""
        x, together = r(3), threading.Barrier(2)

        def first() -> None:
            with openreg.stream(openreg.Stream()), record_function("first"):
                together.wait()  # in its range; so the second may enter
                together.wait()
                x.add(1)
                openreg.current_stream().synchronize()
                together.wait()

        def second() -> None:
            with openreg.stream(openreg.Stream()):
                together.wait()
                with record_function("second"):
                    together.wait()  # in both ranges; so the first may launch
                    together.wait()
                    x.mul(2)
                    openreg.current_stream().synchronize()

        def work() -> None:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda each: each(), (first, second)))

        every = Experimental(profile_all_threads=True)
        events = chrome(profiled(work, experimental_config=every))
        rows = {e["name"]: e["tid"] for e in of(events, "kernel")}
        assert {
            (e["name"], e["tid"]) for e in of(events, "gpu_user_annotation")
        } == {
            ("first", rows["aten::add.Tensor"]),
            ("second", rows["aten::mul.Tensor"]),
        }

    @pytest.mark.proves("memory-profiled")
    def test_memory_is_in_the_timeline(self, tmp_path) -> None:
        options = {"record_shapes": True, "with_stack": True}
        found = profiled(Step(), profile_memory=True, **options)
        path = tmp_path / "memory.json"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            found.export_memory_timeline(str(path), device="openreg:0")
        times, sizes = json.loads(path.read_text())
        assert times
        assert max(map(sum, sizes)) > 0

    def test_a_number_in_the_queue_is_no_memory_of_the_host(
        self, chrome
    ) -> None:
        x, number = r(3), torch.tensor(2.0)
        half = x.cpu() / 2

        def work() -> None:
            sleep(2)  # the number waits, in each mode that queues
            x.div_(number)

        events = chrome(profiled(work, profile_memory=True))
        assert "[memory]" not in {e["name"] for e in events}
        assert torch.equal(x.cpu(), half)

    def test_tensorboard_gets_a_file(self, tmp_path) -> None:
        handler = torch.profiler.tensorboard_trace_handler(str(tmp_path))
        profiled(lambda: r(3).add(1), on_trace_ready=handler)
        (path,) = tmp_path.glob("*.pt.trace.json")
        names = {e["name"] for e in json.loads(path.read_text())["traceEvents"]}
        assert "aten::add.Tensor" in names

    def test_the_older_profiler_takes_events(self) -> None:
        x = r(3)
        with torch.autograd.profiler.profile(use_device="openreg") as found:
            x.add(1)
            sleep(2)
            torch.ones(1)
        (add,) = [e for e in found.function_events if e.name == "aten::add"]
        assert add.device_time_total > 0
        assert add.cpu_time_total > 0

    def test_the_older_profiler_with_kineto_has_kernels(self) -> None:
        x = r(3)
        with torch.autograd.profiler.profile(
            use_device="openreg", use_kineto=True
        ) as found:
            x.add(1)
        names = [
            e.name
            for e in found.function_events
            if e.device_type == DeviceType.PrivateUse1
        ]
        assert names == ["aten::add.Tensor"]

    @pytest.mark.proves("messages.range-pop-on-a-thread")
    def test_ranges_have_the_names_of_nvtx(self) -> None:
        ranges, x = openreg.profiler, r(3)
        assert set(ranges.__all__) <= set(torch.cuda.nvtx.__all__)

        def work() -> None:
            assert [ranges.range_push(name) for name in "ab"] == [0, 1]
            x.add(1)
            assert ranges.range_pop() == 1
            with ranges.range("c{}", 1):
                x.mul(2)
            ranges.mark("d")
            thread = threading.Thread(target=another)
            thread.start()
            thread.join()
            assert ranges.range_pop() == 0

        def another() -> None:  # which is in no range
            refused = "range_pop() on a thread that is in no range"
            with pytest.raises(RuntimeError, match=re.escape(refused)):
                ranges.range_pop()

        took = {
            row.key: row.device_time_total
            for row in profiled(work).key_averages()
            if row.device_type == DeviceType.CPU
        }
        assert took["b"] > 0
        assert took["c1"] > 0
        assert took["a"] == pytest.approx(took["b"] + took["c1"])
        assert took["d"] == 0

    def test_ranges_for_a_vendors_profiler_are_refused(self) -> None:
        config = torch.autograd.ProfilerConfig(
            torch.autograd.ProfilerState.PRIVATEUSE1,
            False, False, False, False, False,
            Experimental(),
        )  # fmt: skip
        with pytest.raises(NotImplementedError, match="no vendor's profiler"):
            torch.autograd._enable_profiler(config, set())


class TestLimits:
    """A profile says what it lacks, and can end at any time."""

    @pytest.mark.proves(
        "profiler.session.getMetadata",
        "profiler-bounded",
        "messages.the-profile-lacks",
    )
    def test_what_is_too_much_is_counted_and_dropped(
        self, tmp_path, capfd
    ) -> None:
        small = Experimental(
            # PyTorch puts a key of its own before the first line.
            custom_profiler_config="-\nACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=1"
        )
        x = torch.ones(1, device="openreg")
        with profile(activities=BOTH, experimental_config=small) as found:
            for _ in range(13_000):
                x.add_(1)
            openreg.synchronize()
        path = tmp_path / "trace.json"
        found.export_chrome_trace(str(path))
        told = json.loads(path.read_text())
        lost = told["openreg_dropped"]
        assert lost > 0
        assert 13_000 <= len(on_device(found)) + lost <= 13_002  # the waits
        assert f"The profile lacks {lost} kernels" in capfd.readouterr().err

    @pytest.mark.queued
    def test_what_has_not_ended_is_counted(self, side, tmp_path) -> None:
        gate, x = Gate(), r(3)
        with profile(activities=BOTH) as found:
            x.add(1)
            openreg.synchronize()
            gate.hold()
            with openreg.device(1):
                x.mul(2)
                found.profiler.use_device = None  # it would wait
        gate.open()
        assert [row.name for row in on_device(found)] == ["aten::add.Tensor"]
        path = tmp_path / "trace.json"
        found.export_chrome_trace(str(path))
        assert json.loads(path.read_text())["openreg_unfinished"] == 1

    def test_one_inside_another_ends_it(self) -> None:
        x = r(3)
        with profile(activities=BOTH):
            x.add(1)
            with profile(activities=BOTH) as inner:
                x.mul(2)
            x.sub(3)
        names = {row.name for row in on_device(inner)}
        assert "aten::mul.Tensor" in names
        assert "aten::sub.Tensor" not in names
        assert len(on_device(profiled(lambda: x.add(1)))) == 1

    def test_threads_take_turns(self) -> None:
        stop, failures = threading.Event(), []

        def launch() -> None:
            with openreg.stream(openreg.Stream()):
                x = r(3)
                while not stop.is_set():
                    x.add_(1).cumsum(0)

        def watch() -> None:
            try:
                for _ in range(5):
                    names = {row.name for row in on_device(profiled(r(3).sin))}
                    assert "aten::sin" in names
            except BaseException as error:
                failures.append(error)

        worker = threading.Thread(target=launch)
        worker.start()
        for _ in range(3):
            watcher = threading.Thread(target=watch)
            watcher.start()
            watcher.join()
        stop.set()
        worker.join()
        assert not failures

    @pytest.mark.proves("messages.the-profile-will-lack-the-devices")
    def test_a_forked_child_can_end_it(self) -> None:
        code = """
        import os
        import torch
        from torch.profiler import ProfilerActivity, profile

        both = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
        x = torch.ones(3, device="openreg")
        with profile(activities=both) as found:
            x.add(1)
            found.profiler.use_device = None
            child = os.fork()
        if child == 0:
            try:
                with profile(activities=both) as own:
                    torch.ones(3).add(1)
                    own.profiler.use_device = None
                os._exit(0 if found.events() and own.events() else 1)
            finally:
                os._exit(2)  # Kineto's own threads are not there to end
        print(os.waitpid(child, 0)[1], len(found.events()) > 0)
        """
        printed = _fresh.prints(code)
        assert printed.splitlines()[-1] == "0 True"
        why = "The profile will lack the device's work. orErrorForkedProcess"
        assert why in printed
