"""The table of book/howto/run-pytorch-tests.md: what a run has counted."""

import json
from typing import Any

from rows import FOLDER
from tables.common import table

READS = ("book/rows/run_pytorch_tests.json",)
# What `backend/tests/sweep_databases.py --record` has kept.
RECORD = FOLDER / "run_pytorch_tests.json"


def databases_counted() -> dict[str, Any]:
    return json.loads(RECORD.read_text("utf-8"))


def databases() -> str:
    """How the tests of PyTorch's databases ended on the device."""
    kept = databases_counted()
    rows = [
        (f"`{name}`", str(sum(ends.values())), *map(str, ends.values()))
        for name, ends in kept["counts"].items()
    ]
    ends = next(iter(kept["counts"].values()))
    head = ("Database", "Tests", *(end.capitalize() for end in ends))
    failed = ", ".join(f"`{name}`" for name in kept["failed"])
    return "\n\n".join(
        [
            f"Counted on {kept['date']} with torch {kept['torch']}:",
            table(head, rows),
            *([f"What failed: {failed}."] if failed else []),
        ]
    )
