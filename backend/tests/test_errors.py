"""Errors: at the call, late and sticky, and in processes that end by them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
import torch

import _device as d
from _fresh import prints, run
from torch_openreg import openreg
from torch_openreg.openreg.testing import Gate

MODE = os.environ.get("OPENREG_LAUNCH", "auto")
DEVICE = "openreg:1"  # the one that fails; 0 goes on

# Operators that look at the values of an index, with the name of the kernel
# that does.
OPERATORS: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "gather": ("gather", lambda x, i: torch.gather(x, 0, i.view(-1, 1))),
    "index_select": ("index_select", lambda x, i: x.index_select(0, i)),
    "embedding": (
        "index_select",
        lambda x, i: torch.nn.functional.embedding(i, x),
    ),
}


@pytest.fixture
def stream() -> openreg.Stream:
    return torch.openreg.Stream(1)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(8.0, device=DEVICE).reshape(4, 2)


def bad_index(device: str = DEVICE, value: int = 9) -> torch.Tensor:
    return torch.tensor([value], device=device)


def select_wrongly(stream: torch.Stream, value: int = 9) -> None:
    """Makes the device of `stream` fail, with a message that has `value`."""
    x = torch.zeros(4, device=stream.device)
    index = bad_index(str(stream.device), value)
    torch.accelerator.synchronize(stream.device_index)
    with torch.openreg.stream(stream):
        torch.gather(x, 0, index)


def fail(stream: torch.Stream) -> None:
    """Returns when the device of `stream` has failed."""
    select_wrongly(stream)
    with pytest.raises(torch.AcceleratorError):
        stream.synchronize()


def error_on_the_cpu(name: str) -> Exception:
    x = torch.arange(8.0).reshape(4, 2)
    with pytest.raises((IndexError, RuntimeError)) as error:
        OPERATORS[name][1](x, bad_index("cpu"))
    return error.value


# When and how an error appears


@pytest.mark.proves("errors.times.queued")
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("where", ["default", "other"])
def test_error_is_the_callers_where_work_runs_at_the_call(
    name: str, where: str, x: torch.Tensor, stream: torch.Stream
) -> None:
    kernel, operator = OPERATORS[name]
    cpu = error_on_the_cpu(name)
    used = torch.openreg.default_stream(1) if where == "default" else stream
    index = bad_index()
    torch.openreg.synchronize(1)
    late = MODE == "async" or (MODE == "auto" and where == "other")
    with torch.openreg.stream(used):
        if late:
            operator(x, index)
            with pytest.raises(torch.AcceleratorError) as error:
                used.synchronize()
            assert f"kernel aten::{kernel} on device 1" in str(error.value)
            assert str(cpu) in str(error.value)
            torch.openreg.reset_device(1)
        else:
            with pytest.raises(type(cpu)) as at_the_call:
                operator(x, index)
            assert type(at_the_call.value) is type(cpu)
            assert str(cpu) in str(at_the_call.value)
        # At the call it was nobody else's; late it ended with the reset.
        used.synchronize()
        assert x.sum().item() == 28


@pytest.mark.proves("inside-errors-at-call", "errors.times.arguments")
@pytest.mark.parametrize("name", OPERATORS)
def test_error_of_the_arguments_always_comes_at_the_call(
    name: str, x: torch.Tensor, stream: torch.Stream
) -> None:
    operator = OPERATORS[name][1]
    with torch.openreg.stream(stream):
        with pytest.raises(RuntimeError) as error:
            operator(x, bad_index("cpu"))
        assert not isinstance(error.value, torch.AcceleratorError)
        assert "on the same device" in str(error.value)
        with pytest.raises((RuntimeError, IndexError)) as other:
            x.index_select(7, bad_index(value=0))
        assert not isinstance(other.value, torch.AcceleratorError)
        stream.synchronize()


@pytest.mark.proves("errors.times.turn")
@pytest.mark.parametrize("where", ["default", "other"])
def test_kernel_that_takes_its_turn_raises_at_the_call(
    where: str, stream: torch.Stream
) -> None:
    negative = torch.tensor([-1], device=DEVICE)
    torch.openreg.synchronize(1)
    used = torch.openreg.default_stream(1) if where == "default" else stream
    with torch.openreg.stream(used):
        # The size of the result depends on the values.
        with pytest.raises(RuntimeError, match="non-negative") as error:
            torch.bincount(negative)
        assert not isinstance(error.value, torch.AcceleratorError)
        assert (negative + 3).tolist() == [2]


@pytest.mark.proves("errors.times.memory")
@pytest.mark.parametrize("where", ["default", "other"])
def test_full_device_says_so_at_the_call(
    where: str, x: torch.Tensor, stream: torch.Stream
) -> None:
    used = torch.openreg.default_stream(1) if where == "default" else stream
    with torch.openreg.stream(used):
        with pytest.raises(torch.OutOfMemoryError, match="openreg"):
            torch.zeros(1 << 40, device=DEVICE)
        used.synchronize()
        assert (x.sum() + 1).item() == 29


def represent(x: torch.Tensor, stream: torch.Stream) -> str:
    """Its error comes without the frames of PyTorch.

    As long as one of them lives, functorch is switched off.
    """
    try:
        return repr(x)
    except torch.AcceleratorError as error:
        raise error.with_traceback(None) from None


# Each meets the failure while it is pending, or after it.
TELLERS: dict[str, Callable[[torch.Tensor, torch.Stream], object]] = {
    "item": lambda x, stream: x[0, 0].item(),
    "cpu": lambda x, stream: x.cpu(),
    "tolist": lambda x, stream: x.tolist(),
    "repr": represent,
    "numpy": lambda x, stream: x.numpy(force=True),
    "synchronize": lambda x, stream: torch.openreg.synchronize(1),
    "accelerator": lambda x, stream: torch.accelerator.synchronize(1),
    "stream.synchronize": lambda x, stream: stream.synchronize(),
    "event.synchronize": lambda x, stream: stream.record_event().synchronize(),
    "inline or boxed": lambda x, stream: torch.sort(x),
    "random": lambda x, stream: torch.rand(2, device=DEVICE),
    "from the host": lambda x, stream: torch.ones(2).to(DEVICE),
    "to device 0": lambda x, stream: x.to("openreg:0"),
}


@pytest.mark.queued
@pytest.mark.parametrize("teller", TELLERS)
def test_late_error_surfaces_at_the_next_call_that_waits(
    teller: str,
    x: torch.Tensor,
    stream: torch.Stream,
    hold: Callable[..., Gate],
) -> None:
    torch.openreg.synchronize(1)
    gate = hold(stream)
    select_wrongly_held(x, stream)
    threading.Timer(0.02, gate.open).start()
    with (
        torch.openreg.stream(stream),
        pytest.raises(torch.AcceleratorError) as error,
    ):
        TELLERS[teller](x, stream)
        stream.synchronize()
    assert_tells_all(error.value)


def select_wrongly_held(x: torch.Tensor, stream: torch.Stream) -> None:
    """As select_wrongly, on a stream that a gate holds."""
    index = torch.full((1, 1), 9, device=DEVICE)
    torch.openreg.default_stream(1).synchronize()
    with torch.openreg.stream(stream):
        torch.gather(x, 0, index)


def assert_tells_all(error: torch.AcceleratorError) -> None:
    assert error.error_code == 10  # orErrorDeviceFailed
    text = str(error)
    assert "kernel aten::gather on device 1" in text
    assert "index 9 is out of bounds for dimension 0 with size 4" in text
    assert "torch.openreg.reset_device()" in text
    assert "OPENREG_LAUNCH=blocking" in text


REFUSED: dict[str, Callable[[torch.Tensor, torch.Stream], object]] = {
    **TELLERS,
    "queued": lambda x, stream: x + 1,
    "in place": lambda x, stream: x.add_(1),
    "zeros": lambda x, stream: torch.zeros(2, device=DEVICE),
    "clone": lambda x, stream: x.clone(),
    "stream.query": lambda x, stream: stream.query(),
    "record": lambda x, stream: stream.record_event(),
    "wait_stream": lambda x, stream: stream.wait_stream(
        torch.openreg.default_stream(1)
    ),
    "resize": lambda x, stream: x.untyped_storage().resize_(4096),
    "save": lambda x, stream: torch.save(x, os.devnull),
}


@pytest.mark.proves(
    "errors-stay", "errors.codes.orErrorDeviceFailed", "errors.times.failed"
)
@pytest.mark.queued
@pytest.mark.parametrize("teller", REFUSED)
@pytest.mark.parametrize("where", ["its stream", "another stream"])
def test_failed_device_refuses_work_until_it_is_reset(
    teller: str, where: str, x: torch.Tensor, stream: torch.Stream
) -> None:
    fail(stream)
    used = stream if where == "its stream" else torch.openreg.Stream(1)
    with torch.openreg.stream(used):
        for _ in range(2):  # it is sticky
            with pytest.raises(torch.AcceleratorError) as error:
                REFUSED[teller](x, used)
            assert_tells_all(error.value)
        torch.openreg.reset_device(1)
        REFUSED[teller](x, used)
        used.synchronize()


@pytest.mark.queued
def test_event_of_a_failed_device_says_so(
    x: torch.Tensor, stream: torch.Stream
) -> None:
    start = torch.Event(DEVICE, enable_timing=True)
    end = torch.Event(DEVICE, enable_timing=True)
    start.record(stream)
    end.record(stream)
    end.synchronize()
    fail(stream)
    for ask in (end.query, end.synchronize, lambda: start.elapsed_time(end)):
        with pytest.raises(torch.AcceleratorError) as error:
            ask()
        assert_tells_all(error.value)
    torch.openreg.reset_device(1)
    assert end.query()
    assert start.elapsed_time(end) >= 0


# What a failure leaves alone


@pytest.mark.queued
def test_memory_outlives_the_failure(
    x: torch.Tensor, stream: torch.Stream
) -> None:
    with torch.openreg.stream(stream):
        written = x * 2
        stream.synchronize()
        fail(stream)
        made_meanwhile = torch.empty(4, device=DEVICE)
    view = x[1]
    torch.openreg.reset_device(1)
    assert x.cpu().equal(torch.arange(8.0).reshape(4, 2))
    assert written.cpu().equal(torch.arange(8.0).reshape(4, 2) * 2)
    view.fill_(5)
    assert x[1].tolist() == [5, 5]
    assert made_meanwhile.fill_(3).tolist() == [3] * 4


@pytest.mark.queued
def test_work_behind_the_failure_is_lost_and_work_before_it_is_not(
    x: torch.Tensor, stream: torch.Stream, hold: Callable[..., Gate]
) -> None:
    index = torch.full((1, 1), 9, device=DEVICE)
    torch.openreg.synchronize(1)
    gate = hold(stream)
    with torch.openreg.stream(stream):
        x.add_(1)
        torch.gather(x, 0, index)
        x.add_(100)
    gate.open()
    with pytest.raises(torch.AcceleratorError):
        stream.synchronize()
    torch.openreg.reset_device(1)
    assert x.cpu().equal(torch.arange(8.0).reshape(4, 2) + 1)


@pytest.mark.proves("errors-other-device")
@pytest.mark.queued
def test_other_devices_go_on(stream: torch.Stream) -> None:
    other = torch.openreg.Stream(0)
    y = torch.ones(3, device="openreg:0")
    torch.openreg.synchronize(0)
    fail(stream)
    with torch.openreg.stream(other):
        assert (y + 1).tolist() == [2, 2, 2]
        other.record_event().synchronize()
    torch.openreg.synchronize(0)
    assert (y + 2).tolist() == [3, 3, 3]
    with pytest.raises(torch.AcceleratorError):
        stream.synchronize()


@pytest.mark.proves("errors-no-hang")
@pytest.mark.queued
@pytest.mark.parametrize("device", [0, 1])
def test_nobody_waits_for_ever_for_a_device_that_fails(
    device: int,
    x: torch.Tensor,
    stream: torch.Stream,
    hold: Callable[..., Gate],
) -> None:
    waiting = torch.openreg.Stream(device)
    torch.openreg.synchronize(1)
    gate = hold(stream)
    select_wrongly_held(x, stream)
    event = stream.record_event()
    waiting.wait_event(event)
    answers: list[str] = []

    def wait() -> None:
        try:
            waiting.synchronize()
            answers.append("done")
        except torch.AcceleratorError as error:
            assert_tells_all(error)
            answers.append("failed")

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join()
    assert answers == ["failed" if device == 1 else "done"] * 3
    with pytest.raises(torch.AcceleratorError):
        event.synchronize()


@pytest.mark.queued
def test_letting_go_never_raises(x: torch.Tensor, stream: torch.Stream) -> None:
    pinned = torch.zeros(1024).pin_memory()
    with torch.openreg.stream(stream):
        copied = pinned.to(DEVICE, non_blocking=True)
        event = stream.record_event()
        stream.synchronize()
    allocated = torch.openreg.memory_allocated(1)
    fail(stream)
    copied.record_stream(torch.openreg.Stream(1))
    x.record_stream(stream)
    del copied, event, pinned, x
    torch.openreg.empty_cache()
    torch.accelerator.empty_host_cache()
    torch.openreg.set_stream(torch.openreg.Stream(1))
    torch.openreg.set_stream(torch.openreg.default_stream(1))
    torch.openreg.reset_device(1)
    torch.openreg.synchronize(1)
    assert torch.openreg.memory_allocated(1) < allocated
    assert torch.ones(1024, device=DEVICE).sum().item() == 1024


@pytest.mark.queued
def test_questions_are_answered_by_a_failed_device(
    x: torch.Tensor, stream: torch.Stream
) -> None:
    fail(stream)
    assert x.shape == (4, 2)
    assert x.view(8)[2:].storage_offset() == 2
    assert x.is_contiguous()
    assert x.device == torch.device(DEVICE)
    assert torch.openreg.get_device_name(1) == "OpenReg"
    assert torch.openreg.mem_get_info(1)[1] > 0
    assert torch.openreg.current_stream(1) == torch.openreg.default_stream(1)
    torch.openreg.manual_seed_all(3)
    with torch.openreg.device(1):
        assert torch.openreg.current_device() == 1


# Threads and autograd


@pytest.mark.queued
def test_first_failure_is_the_one_that_is_told() -> None:
    gate = Gate()
    streams = [torch.openreg.Stream(1) for _ in range(4)]
    x = torch.zeros(4, device=DEVICE)
    indices = [bad_index(value=10 + n) for n in range(4)]
    torch.openreg.synchronize(1)
    told: list[str] = []

    def use(stream: torch.Stream, index: torch.Tensor) -> None:
        with torch.openreg.stream(stream):
            with pytest.raises(torch.AcceleratorError) as error:
                torch.gather(x, 0, index)  # refused, if another was faster
                stream.synchronize()
            told.append(str(error.value))

    for stream in streams:
        gate.hold(stream)
    threads = [
        threading.Thread(target=use, args=pair)
        for pair in zip(streams, indices, strict=True)
    ]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join()
    assert len(told) == 4
    assert len(set(told)) == 1
    assert "out of bounds for dimension 0 with size 4" in told[0]


@pytest.mark.queued
def test_backward_on_a_failed_device_raises_and_can_be_run_again(
    stream: torch.Stream,
) -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = (x * 2).sum()
    torch.openreg.synchronize(1)
    fail(stream)
    with pytest.raises(torch.AcceleratorError) as error:
        y.backward()
    assert_tells_all(error.value)
    assert x.grad is None
    cpu = torch.ones(1, requires_grad=True)
    (cpu * 3).backward()
    assert cpu.grad is not None
    assert cpu.grad.item() == 3
    torch.openreg.reset_device(1)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


@pytest.mark.queued
def test_forward_that_fails_late_is_told_in_backward(
    x: torch.Tensor, stream: torch.Stream, hold: Callable[..., Gate]
) -> None:
    index = torch.full((1, 1), 9, device=DEVICE)
    x.requires_grad_()
    torch.openreg.synchronize(1)
    gate = hold(stream)
    with torch.openreg.stream(stream):
        y = torch.gather(x, 0, index).sum()
        gate.open()
        with pytest.raises(torch.AcceleratorError) as error:
            y.backward()
            stream.synchronize()
    assert_tells_all(error.value)
    torch.openreg.reset_device(1)
    with torch.openreg.stream(stream):
        torch.gather(x, 0, index - 6).sum().backward()
        assert x.grad is not None
        assert x.grad.sum().item() == 1


def test_error_at_the_call_in_backward_keeps_its_type() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            with torch.openreg.stream(torch.openreg.default_stream(1)):
                return torch.sort(grad.index_select(5, bad_index())).values

    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with pytest.raises(IndexError, match="Dimension out of range"):
        Fails.apply(x).sum().backward()
    torch.openreg.synchronize(1)


# What only a fresh process can show


@pytest.mark.one_mode
def test_process_leaves_in_the_failed_state_without_a_word() -> None:
    process = run(
        """
        import torch
        x = torch.ones(4, device="openreg", requires_grad=True)
        stream, event = torch.openreg.Stream(), torch.openreg.Event()
        with torch.openreg.stream(stream):
            y = x.gather(0, torch.tensor([9], device="openreg"))
            try:
                event.record(stream)
                y.sum().backward()
                stream.synchronize()
            except torch.AcceleratorError as error:
                print("failed", error.error_code, flush=True)
        pinned = torch.ones(4).pin_memory()
        """
    )
    assert process.stdout == "failed 10\n"
    assert process.returncode == 0


@pytest.mark.one_mode
def test_late_error_that_nobody_asked_for_does_not_stop_the_exit() -> None:
    printed = prints(
        """
        import torch
        from torch_openreg.openreg.testing import Gate
        x = torch.ones(4, device="openreg")
        index = torch.tensor([9], device="openreg")
        torch.openreg.synchronize()
        gate = Gate()
        with torch.openreg.stream(torch.openreg.Stream()):
            gate.hold()
            lost = x.gather(0, index) + 1
        gate.open()
        print("leaving")
        """
    )
    assert printed == "leaving\n"


@pytest.mark.one_mode
def test_host_that_follows_a_device_pointer_is_told_what_it_did() -> None:
    process = run(
        """
        import ctypes
        import torch
        x = torch.ones(4, device="openreg:1")
        print(ctypes.c_float.from_address(x.data_ptr()).value)
        """
    )
    assert process.returncode == -11
    first = process.stdout.splitlines()[0]
    assert first.startswith("openreg: the host touched device memory at")
    assert "device 1, byte 0 of the block" in first
    assert "x.cpu()" in first


@pytest.mark.proves(
    "errors.codes.orErrorInvalidDevicePointer",
    "errors.codes.orErrorInvalidResourceHandle",
)
def test_wrong_pointers_are_refused_and_the_device_goes_on() -> None:
    printed = d.check_run(
        """
        block = malloc(64)
        host = ctypes.create_string_buffer(64)
        foreign = ctypes.addressof(host)
        def refusal(function, *arguments):
            try:
                function(*arguments)
            except DeviceError as error:
                return error.name
        print("interior", refusal(free, block + 8))
        free(block)
        print("again", refusal(free, block))
        print("foreign", refusal(free, foreign))
        print("read after free", refusal(read, block, 8))
        print("set foreign", refusal(memset, foreign, 1, 8))
        print("stream", refusal(synchronize, foreign))
        block = malloc(64)
        write(block, b"as before")
        print(read(block, 9).decode())
        """
    )
    assert printed.splitlines() == [
        "interior orErrorInvalidDevicePointer",
        "again orErrorInvalidDevicePointer",
        "foreign orErrorInvalidDevicePointer",
        "read after free orErrorInvalidDevicePointer",
        "set foreign orErrorInvalidDevicePointer",
        "stream orErrorInvalidResourceHandle",
        "as before",
    ]


@pytest.mark.proves(
    "messages.no-openreg-devices-are-available-openreg_device_count"
)
@pytest.mark.one_mode
def test_without_a_device_every_use_says_so_and_nothing_crashes() -> None:
    printed = prints(
        """
        import torch
        from torch_openreg.openreg.testing import sleep
        print(torch.openreg.is_available(), torch.openreg.device_count())
        accelerator = torch.accelerator
        print(accelerator.is_available(), accelerator.device_count())
        uses = dict(
            tensor=lambda: torch.ones(1, device="openreg"),
            to=lambda: torch.ones(1).to("openreg:0"),
            module=lambda: torch.nn.Linear(1, 1).to("openreg"),
            stream=lambda: torch.openreg.Stream(),
            plain_stream=lambda: torch.Stream("openreg"),
            current=lambda: torch.openreg.current_stream(),
            synchronize=lambda: torch.openreg.synchronize(),
            accelerator=lambda: torch.accelerator.synchronize(),
            index=lambda: torch.accelerator.set_device_index(0),
            device=lambda: torch.openreg.set_device(0),
            properties=lambda: torch.openreg.get_device_properties(),
            reset=lambda: torch.openreg.reset_device(),
            memory=lambda: torch.openreg.mem_get_info(),
            generator=lambda: torch.Generator("openreg"),
            state=lambda: torch.openreg.get_rng_state(),
            summary=lambda: torch.openreg.memory_summary(),
            seed=lambda: torch.openreg.manual_seed(1),
            event=lambda: torch.Event("openreg").record(),
            pin=lambda: torch.ones(1).pin_memory(),
            sleep=lambda: sleep(1),
        )
        for name, use in uses.items():
            try:
                use()
                print(name, "works")
            except (RuntimeError, IndexError, AssertionError) as error:
                print(name, "refused", str(error).splitlines()[0])
        torch.manual_seed(0)
        torch.openreg.manual_seed_all(0)
        torch.openreg.empty_cache()
        print(torch.ones(2).sum().item())
        """,
        OPENREG_DEVICE_COUNT="0",
    )
    first, second, *uses, last = printed.splitlines()
    assert (first, second, last) == ("False 0", "False 0", "2.0")
    for use in uses:
        assert " refused " in use, use
        expected = "No openreg devices are available: OPENREG_DEVICE_COUNT"
        assert expected in use, use
