"""The performance chapter prints what one run of the bench has kept."""

import re

import bench_device as bench
import releases
from rows import recorded
from tables.performance import performance_drawing


def test_the_figures_are_of_todays_program_and_version() -> None:
    kept = recorded("performance")
    rows = list(bench.rows("cpu"))
    assert list(kept["rows"]) == list(bench.COLUMNS)
    for column in kept["rows"].values():
        assert list(column) == rows, "run nox -s bench -- --record again"
    assert list(kept["two threads"]) == list(bench.BACKWARD)
    assert kept["torch"] == releases.current()[0]
    assert kept.keys() >= {"compiled", "loaders"}
    assert set(bench.AT_MOST) <= set(rows)
    assert kept["at most"] == bench.AT_MOST
    ends = ("both passes", "train step")
    backward = [row for row in rows if row.endswith(ends)]
    assert list(kept["calling thread"]) == backward


def test_only_convolution_and_lstm_lack_a_fallback() -> None:
    columns = recorded("performance")["rows"]
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


def test_marks_stand_in_the_order_of_the_ratios() -> None:
    drawn = performance_drawing()
    for i, rows in enumerate(recorded("performance")["rows"].values()):
        ratios = [b / a for a, b in filter(None, rows.values())]
        found = re.findall(rf'class="way-{i}" d="M(\d+)', drawn)
        *xs, _ = map(int, found)  # the last stands beside its name
        assert [x for _, x in sorted(zip(ratios, xs, strict=True))] == sorted(
            xs
        )
