"""Runs backend/examples/database_tests.py whole, and counts what came of it.

    python backend/tests/sweep_databases.py --record

Every test has a time limit. A process that dies or is too slow costs its test
only; another one goes on. `--record` keeps the counts for the book.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "backend" / "examples" / "database_tests.py"
RECORD = ROOT / "book" / "rows" / "run_pytorch_tests.json"
DATABASES = {
    "test_operator": "op_db",
    "test_module": "module_db",
    "test_optimizer": "optim_db",
}
SECONDS = 900


def run(report: Path, *arguments: str) -> None:
    """The tests, in a folder where no settings of this project are found."""
    shutil.copy(TESTS, report.parent)
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=line"),
            *("-p", "no:cacheprovider", f"-n{os.cpu_count()}"),
            *("-o", f"faulthandler_timeout={SECONDS}"),
            *("-o", "faulthandler_exit_on_timeout=true"),
            *(f"--junit-xml={report}", TESTS.name, *arguments),
        ],
        cwd=report.parent,
        env=os.environ | {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "openreg"},
    )


def outcome(case: ET.Element) -> str:
    ends = {part.tag for part in case} & {"failure", "error", "skipped"}
    if not ends:
        return "passed"
    return "skipped" if "skipped" in ends else "failed"


def count(report: Path) -> dict[str, Any]:
    """How the tests of each database ended, and which of them failed."""
    cases = list(ET.parse(report).iter("testcase"))
    ends = Counter(
        (database, outcome(case))
        for case in cases
        for test, database in DATABASES.items()
        if case.get("name", "").startswith(f"{test}_")
    )
    return {
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "counts": {
            database: {
                end: ends[database, end]
                for end in ("passed", "skipped", "failed")
            }
            for database in DATABASES.values()
        },
        "failed": sorted(
            case.get("name", "") for case in cases if outcome(case) == "failed"
        ),
    }


def main() -> int:
    arguments = sys.argv[1:]
    keep = "--record" in arguments
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        run(report, *(a for a in arguments if a != "--record"))
        found = count(report)
    print(json.dumps(found, indent=1))
    if keep:
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
    return min(len(found["failed"]), 1)


if __name__ == "__main__":
    sys.exit(main())
