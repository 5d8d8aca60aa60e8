"""The counts of PyTorch's databases are those of a run of today's tests."""

import runpy

import pytest
import torch
from _pages import SAMPLES

import regions
import releases
import sweep_databases
from rows import recorded
from tables import run_pytorch_tests

EXAMPLE = regions.ROOT / "backend" / "examples" / "database_tests.py"


@pytest.mark.recorded
@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_the_counts_are_of_todays_tests_and_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTORCH_TESTING_DEVICE_ONLY_FOR", "openreg")
    tests = runpy.run_path(str(EXAMPLE), run_name="database_tests")
    torch.backends.__allow_nonbracketed_mutation_flag = True
    kept = recorded("run_pytorch_tests")
    (made,) = (
        value
        for name, value in tests.items()
        if name.startswith("TestDatabases")
    )
    for test, database in sweep_databases.DATABASES.items():
        names = [name for name in dir(made) if name.startswith(f"{test}_")]
        assert len(names) == sum(kept["counts"][database].values()) > 0
        row = f"| `{database}` | {len(names)} |"
        assert row in run_pytorch_tests.databases(), (
            "run sweep_databases.py --record"
        )
    assert kept["torch"] == releases.current()[0]
    failed = sum(ends["failed"] for ends in kept["counts"].values())
    assert len(kept["failed"]) == failed


def test_each_end_of_a_test_is_counted() -> None:
    found = sweep_databases.count(SAMPLES / "report.xml")
    assert list(found["counts"]) == ["op_db", "module_db", "optim_db"]
    ends = [tuple(ends.values()) for ends in found["counts"].values()]
    assert ends == [(1, 1, 0), (0, 0, 1), (0, 0, 1)]
    assert found["failed"] == ["test_module_nn_GLU", "test_optimizer_SGD"]
