"""The tables of book/howto/run-pytorch-tests.md and of the chapter compile."""

from rows import recorded
from tables.common import table

READS = ("book/rows/run_pytorch_tests.json", "book/rows/compile.json")
# The files have what `sweep_databases.py` and `sweep_compiled.py` have kept.
PAGE = "run_pytorch_tests"


def databases(page: str = PAGE) -> str:
    """How the tests of PyTorch's databases ended on the device."""
    kept = recorded(page)
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
