"""The performance chapter prints what one run of the bench has kept."""

import importlib.util
import re

import pytest
import torch

import tables

PROGRAM = tables.ROOT / "backend" / "tests" / "bench_device.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_device", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_of_todays_program_and_version(bench) -> None:
    kept = tables.recorded()
    rows = list(bench.rows("cpu"))
    assert list(kept["rows"]) == list(bench.COLUMNS)
    for column in kept["rows"].values():
        assert list(column) == rows, "run nox -s bench -- --record again"
    assert list(kept["two threads"]) == list(bench.BACKWARD)
    assert kept["torch"] == torch.__version__.partition("+")[0]
    assert set(bench.AT_MOST) <= set(rows)


def test_every_row_of_the_device_is_printed_with_its_ratio(bench) -> None:
    lines = tables.performance_rows().splitlines()[2:]
    assert len(lines) == len(bench.rows("cpu"))
    for line in lines:
        cpu, device, ratio = re.findall(r"[\d.]+", line.split("|", 2)[2])[:3]
        assert float(ratio) == pytest.approx(
            float(device) / float(cpu), abs=0.02
        )


def test_only_convolution_and_lstm_lack_a_fallback() -> None:
    columns = tables.recorded()["rows"]
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
