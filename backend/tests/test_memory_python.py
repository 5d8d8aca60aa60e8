"""torch.openreg's own functions on memory."""

from __future__ import annotations

import pytest
import torch

MIB = 1 << 20


def empty(size: int, device: str = "openreg:1") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


@pytest.fixture(autouse=True)
def settled() -> None:
    torch.accelerator.synchronize(1)
    torch.openreg.empty_cache()


@pytest.mark.parametrize(
    "name",
    [
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "memory_stats",
    ],
)
def test_the_numbers_are_those_of_torch_accelerator(name: str) -> None:
    x = empty(3 * MIB)
    ours = getattr(torch.openreg, name)
    generic = getattr(torch.accelerator, name)
    assert ours("openreg:1") == generic(1)
    assert ours(torch.device("openreg:1")) == generic(1)
    with torch.openreg.device(1):
        assert ours() == generic()
    del x


def test_memory_info_is_what_the_device_says() -> None:
    free, total = torch.openreg.mem_get_info(1)
    assert (free, total) == torch.accelerator.get_memory_info(1)
    x = empty(32 * MIB)
    assert torch.openreg.mem_get_info("openreg:1") == (free - 32 * MIB, total)
    del x


def test_nested_statistics_hold_the_same_numbers() -> None:
    x = empty(100)
    nested = torch.openreg.memory_stats_as_nested_dict(1)
    flat = torch.openreg.memory_stats(1)
    assert list(flat) == sorted(flat)
    for name, value in flat.items():
        found = nested
        for part in name.split("."):
            found = found[part]
        assert found == value
    assert nested["requested_bytes"]["small_pool"]["current"] >= 100
    del x


def test_peaks_and_sums_are_reset() -> None:
    x = empty(5 * MIB)
    del x
    torch.openreg.reset_peak_memory_stats(1)
    torch.openreg.reset_accumulated_memory_stats(1)
    stats = torch.openreg.memory_stats(1)
    assert (
        stats["allocated_bytes.all.peak"]
        == stats["allocated_bytes.all.current"]
    )
    assert stats["allocation.all.allocated"] == 0


def test_emptying_the_host_cache_frees_pinned_memory() -> None:
    x = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    del x
    before = torch.openreg.host_memory_stats()["num_host_free"]
    torch.openreg.empty_host_cache()
    assert torch.openreg.host_memory_stats()["num_host_free"] > before


def test_the_fraction_limits_one_device_alone() -> None:
    assert torch.openreg.get_per_process_memory_fraction(1) == 1.0
    total = torch.openreg.mem_get_info(1)[1]
    half = torch.openreg.memory_reserved(1) + 32 * MIB
    torch.openreg.set_per_process_memory_fraction(half / total, "openreg:1")
    try:
        assert torch.openreg.get_per_process_memory_fraction(1) == half / total
        assert torch.openreg.get_per_process_memory_fraction(0) == 1.0
        with pytest.raises(
            torch.OutOfMemoryError, match="memory_fraction allows it"
        ):
            empty(40 * MIB)
        assert empty(40 * MIB, "openreg:0").numel()
    finally:
        torch.openreg.set_per_process_memory_fraction(1.0, 1)
    assert empty(40 * MIB).numel()


@pytest.mark.proves(
    "messages.expected-a-float-as-fraction-but", "messages.must-be-in-0-1-but"
)
@pytest.mark.parametrize(
    ("fraction", "error", "message"),
    [
        (1.5, ValueError, r"must be in \[0, 1\], but got 1.5"),
        (-0.1, ValueError, r"must be in \[0, 1\], but got -0.1"),
        (float("nan"), ValueError, r"must be in \[0, 1\], but got nan"),
        (1, TypeError, "Expected a float as fraction, but got int"),
    ],
)
def test_a_fraction_that_cannot_be_is_refused(fraction, error, message) -> None:
    with pytest.raises(error, match=message):
        torch.openreg.set_per_process_memory_fraction(fraction)
    assert torch.openreg.get_per_process_memory_fraction() == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "memory_allocated",
        "mem_get_info",
        "memory_snapshot",
        "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
        "get_per_process_memory_fraction",
    ],
)
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="device index is out of range"):
        getattr(torch.openreg, name)(7)
    with pytest.raises(ValueError, match="Expected an openreg device"):
        getattr(torch.openreg, name)("cpu")


def test_a_snapshot_accounts_for_every_byte() -> None:
    x, y = empty(3 * MIB), empty(100)
    address = y.data_ptr()
    del y
    segments = torch.openreg.memory_snapshot(1)
    assert sum(s["total_size"] for s in segments) == (
        torch.openreg.memory_reserved(1)
    )
    assert sum(s["allocated_size"] for s in segments) == (
        torch.openreg.memory_allocated(1)
    )
    assert {s["device"] for s in segments} == {1}
    states = {}
    for segment in segments:
        begin = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == begin
            begin += block["size"]
            states[block["address"]] = block["state"], segment["segment_type"]
        assert begin == segment["address"] + segment["total_size"]
    assert states[x.data_ptr()] == ("active_allocated", "large")
    assert states[address] == ("inactive", "small")
    stream = torch.openreg.default_stream(1)
    assert {s["stream"] for s in segments if s["address"] == x.data_ptr()} == {
        stream.native_handle
    }


def test_a_snapshot_without_a_device_shows_all() -> None:
    x, y = empty(8, "openreg:0"), empty(8, "openreg:1")
    shown = {s["device"] for s in torch.openreg.memory_snapshot()}
    assert shown == {0, 1}
    del x, y


def test_a_summary_is_a_table_of_the_counts() -> None:
    x = empty(3 * MIB)
    torch.openreg.reset_peak_memory_stats(1)
    lines = torch.openreg.memory_summary(1).splitlines()
    assert len({len(line) for line in lines[:-3]}) == 1
    rows = {line[:32].strip(): line[32:].split() for line in lines}
    assert rows["Memory of openreg:1"] == [
        *("current", "peak", "allocated", "freed")
    ]
    kib = torch.openreg.memory_allocated(1) // 1024
    assert rows["allocated_bytes"][:4] == [str(kib), "KiB", str(kib), "KiB"]
    assert rows["num_ooms"] == [str(torch.openreg.memory_stats(1)["num_ooms"])]
    short = torch.openreg.memory_summary(1, abbreviated=True)
    assert "small_pool" not in short
    assert "reserved_bytes" in short
    del x
