"""torch.accelerator, which names no device: every public name of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from _fresh import prints

acc = torch.accelerator
EXAMPLE = Path(__file__).parents[1] / "examples" / "anywhere.py"


@pytest.mark.proves("accelerator.current_accelerator")
def test_the_accelerator_is_openreg():
    assert acc.current_accelerator() == torch.device("openreg")
    assert acc.current_accelerator(check_available=True).index is None
    assert acc.is_available()
    assert acc.device_count() == 2


@pytest.mark.proves("accelerator.device_index")
def test_device_index_goes_back_after_an_exception():
    with pytest.raises(KeyError), acc.device_index(1):
        assert acc.current_device_index() == 1
        with acc.device_index(None):
            assert acc.current_device_index() == 1
        raise KeyError
    assert acc.current_device_index() == 0
    with pytest.raises(RuntimeError, match=r"\[0, 2\), but got 9"):
        acc.device_index(9).__enter__()
    assert acc.current_device_index() == 0


@pytest.mark.proves(
    "accelerator.current_device_idx", "accelerator.set_device_idx"
)
def test_the_old_names_warn_and_work():
    with pytest.warns(FutureWarning, match="set_device_index"):
        acc.set_device_idx(1)
    with pytest.warns(FutureWarning, match="current_device_index"):
        assert acc.current_device_idx() == 1


@pytest.mark.proves("accelerator.current_stream", "accelerator.set_stream")
def test_a_stream_is_set_with_its_device():
    before = acc.current_stream(1)
    stream = torch.Stream("openreg:1")
    assert stream != before
    acc.set_stream(stream)
    try:
        assert acc.current_device_index() == 1
        assert acc.current_stream() == stream
        assert acc.current_stream("openreg:0").device.index == 0
        x = torch.ones(3, device="openreg:1") + 1
        assert x.tolist() == [2, 2, 2]
    finally:
        acc.set_stream(before)


def test_a_stream_of_another_device_type_is_refused():
    before = acc.current_stream()
    cuda = int(torch._C._autograd.DeviceType.CUDA)
    stream = torch.Stream(stream_id=0, device_index=0, device_type=cuda)
    with pytest.raises(RuntimeError, match="type CUDA doesn't match the curr"):
        acc.set_stream(stream)
    for ask in (acc.current_stream, acc.synchronize, acc.memory_stats):
        with pytest.raises(ValueError, match="match the current accelerator"):
            ask("cpu")
    assert acc.current_stream() == before


def test_a_device_that_does_not_exist_is_refused():
    for ask in (
        acc.set_device_index,
        acc.current_stream,
        acc.synchronize,
        acc.memory_stats,
        acc.get_memory_info,
        acc.reset_peak_memory_stats,
        acc.reset_accumulated_memory_stats,
    ):
        with pytest.raises(RuntimeError, match=r"\[0, 2\), but got 2"):
            ask(2)
    assert acc.current_device_index() == 0


@pytest.mark.proves("accelerator.synchronize")
@pytest.mark.queued
def test_synchronize_waits_for_the_device_named():
    stream = torch.Stream("openreg:1")
    gate = torch.openreg.testing.Gate()
    gate.hold(stream)
    event = torch.Event("openreg")
    event.record(stream)
    acc.synchronize(0)
    assert not event.query()
    gate.open()
    acc.synchronize(1)
    assert event.query()


@pytest.mark.proves("accelerator.empty_host_cache")
def test_the_host_cache_can_be_emptied():
    address = torch.ones(1000).pin_memory().data_ptr()
    acc.empty_host_cache()
    x = torch.ones(1000).pin_memory()
    assert x.is_pinned()
    assert x.sum() == 1000
    assert address  # whether it is the same one is up to the system


@pytest.mark.proves("accelerator.empty_cache")
def test_the_cache_can_be_emptied():
    acc.empty_cache()
    before = acc.memory_reserved(1)
    x = torch.empty(48 << 20, dtype=torch.uint8, device="openreg:1")
    assert acc.memory_reserved(1) >= before + x.nbytes
    del x
    acc.empty_cache()  # of all devices
    assert acc.memory_reserved(1) == before


@pytest.mark.proves(
    "accelerator.get_memory_info",
    "accelerator.memory_stats",
    "accelerator.memory_allocated",
    "accelerator.max_memory_allocated",
    "accelerator.memory_reserved",
    "accelerator.max_memory_reserved",
    "accelerator.reset_accumulated_memory_stats",
    "accelerator.reset_peak_memory_stats",
)
def test_memory_is_counted_for_each_device():
    other = acc.memory_allocated(0)
    acc.reset_accumulated_memory_stats(1)
    acc.reset_peak_memory_stats(1)
    before = acc.memory_allocated(1)
    assert acc.max_memory_allocated(1) == before
    x = torch.empty(1 << 20, dtype=torch.uint8, device="openreg:1")
    with acc.device_index(1):
        assert acc.memory_allocated() >= before + x.nbytes
    del x
    assert acc.memory_allocated(1) == before
    assert acc.max_memory_allocated(1) >= before + (1 << 20)
    assert acc.max_memory_reserved(1) >= acc.memory_reserved(1) >= before
    stats = acc.memory_stats("openreg:1")
    assert stats["allocated_bytes.all.allocated"] >= 1 << 20
    assert (
        stats["allocation.all.current"]
        == acc.memory_stats(1)["allocation.all.current"]
    )
    assert acc.memory_allocated(0) == other
    free, total = acc.get_memory_info("openreg:1")
    assert (
        0 < free <= total == torch.openreg.get_device_properties(1).total_memory
    )


def run_example(**environment: str) -> str:
    return prints(EXAMPLE.read_text(), **environment)


@pytest.mark.one_mode
@pytest.mark.proves("accelerator-anywhere")
@pytest.mark.parametrize(
    "environment",
    [{"OPENREG_DEVICE_COUNT": "0"}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}],
    ids=["no device", "no backend"],
)
def test_the_example_runs_without_an_accelerator(environment):
    lines = run_example(**environment).splitlines()
    assert lines[0] == "cpu: 0 of them to train on"
    assert lines[1].startswith("the CPU: ")
    assert len(lines) == 2


@pytest.mark.one_mode
def test_the_example_runs_on_every_device():
    lines = run_example(OPENREG_DEVICE_COUNT="3").splitlines()
    assert lines[0] == "openreg: 3 of them to train on"
    assert [line.split(":")[0] for line in lines[1:4]] == [
        "device 0",
        "device 1",
        "device 2",
    ]


@pytest.mark.one_mode
@pytest.mark.proves(
    "accelerator-no-device",
    "accelerator.is_available",
    "accelerator.device_count",
)
def test_without_a_device_nothing_crashes():
    printed = prints(
        """
        import torch
        acc = torch.accelerator
        print(acc.is_available(), acc.device_count())
        print(acc.current_accelerator(), acc.current_accelerator(True))
        torch.manual_seed(1)
        acc.empty_cache()
        print(acc.memory_allocated(), len(acc.memory_stats()))
        for ask in (
            lambda: torch.ones(1, device="openreg"),
            lambda: torch.Generator("openreg"),
            lambda: torch.Stream("openreg"),
            lambda: torch.Event("openreg").record(),
            lambda: acc.synchronize(),
            lambda: acc.current_device_index(),
            lambda: acc.set_device_index(0),
            lambda: acc.current_stream(),
            lambda: acc.get_memory_info(0),
            lambda: torch.openreg.synchronize(),
            lambda: torch.ones(1).pin_memory(),
        ):
            try:
                print("no error", ask())
            except RuntimeError as error:
                print(str(error).splitlines()[0])
        print(torch.ones(2).sum().item())
        """,
        OPENREG_DEVICE_COUNT="0",
    )
    available, accelerator, memory, *refusals, last = printed.splitlines()
    assert available == "False 0"
    assert accelerator == "openreg None"  # the build has one, the machine none
    assert memory == "0 0"
    assert len(refusals) == 11
    for refusal in refusals:
        assert re.search("OPENREG_DEVICE_COUNT( is |=)0", refusal)
    assert last == "2.0"
