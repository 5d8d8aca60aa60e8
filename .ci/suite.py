"""How the suite is run, by `nox -s tests` once and by stress.py often."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "backend" / "tests"

PYTEST = ("python", "-m", "pytest")
# A file, and so a page, is run by one process from its top to its end.
CORES = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
AT_ONCE = (
    f"--numprocesses={CORES}",
    "--dist=loadfile",
    "--no-loadscope-reorder",  # the longest stand early in the alphabet
)
# However work is launched, the same must come of it.
OTHER_MODES = ("async", "blocking")
AGAIN = (*AT_ONCE, str(TESTS), "-m", "not stress and not one_mode")
# What is set for each run, the first of which takes the mode `auto`.
SUITE: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({}, AT_ONCE),
    *(({"OPENREG_LAUNCH": mode}, AGAIN) for mode in OTHER_MODES),
)
