"""The performance chapter prints what one run of the bench has kept."""

import importlib.util

import pytest
import torch

import regions
from tables import performance

PROGRAM = regions.ROOT / "backend" / "tests" / "bench_device.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_device", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_of_todays_program_and_version(bench) -> None:
    kept = performance.recorded()
    rows = list(bench.rows("cpu"))
    assert list(kept["rows"]) == list(bench.COLUMNS)
    for column in kept["rows"].values():
        assert list(column) == rows, "run nox -s bench -- --record again"
    assert list(kept["two threads"]) == list(bench.BACKWARD)
    assert kept["torch"] == torch.__version__.partition("+")[0]
    assert set(bench.AT_MOST) <= set(rows)
    assert kept["at most"] == bench.AT_MOST
    ends = ("both passes", "train step")
    backward = [row for row in rows if row.endswith(ends)]
    assert list(kept["calling thread"]) == backward


def test_every_row_with_a_backward_pass_is_printed_for_both_threads() -> None:
    lines = performance.performance_backward().splitlines()[2:]
    kept = performance.recorded()["calling thread"]
    for line, (row, (cpu, device)) in zip(lines, kept.items(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert (cells[0], cells[3]) == (row, f"{device / cpu:.2f}")


def test_every_row_of_the_device_is_printed_with_its_ratio(bench) -> None:
    lines = performance.performance_rows().splitlines()[2:]
    kept, most = performance.recorded()["rows"]["auto"], bench.AT_MOST
    for line, (row, (cpu, device)) in zip(lines, kept.items(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0] == row
        assert float(cells[1]) == pytest.approx(cpu, abs=0.005)
        assert cells[3] == f"**{device / cpu:.2f}**"
        assert cells[4] == (f"{most[row]:.2f}" if row in most else "")


def test_the_step_of_two_threads_is_printed_for_every_place() -> None:
    kept = performance.recorded()["two threads"]
    lines = performance.performance_threads().splitlines()
    assert lines[0].count("backward on") == len(kept)
    assert len(lines[2:]) == len(kept["autograd's thread"])


def test_only_convolution_and_lstm_lack_a_fallback() -> None:
    columns = performance.recorded()["rows"]
    lacking = [
        row for row, found in columns["copying fallback"].items() if not found
    ]
    assert lacking == [
        "conv2d",
        "LSTM, both passes",
        "CNN train step",
        "LSTM train step",
    ]
    assert all(columns["auto"].values())
