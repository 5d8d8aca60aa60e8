"""What one run of the tests says to the processes that it starts."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build"
# Lets a process count the lines that it runs.
COUNTING = "COVERAGE_PROCESS_CONFIG"
_counting: dict[str, str] = {}


def begin(config: pytest.Config) -> None:
    """What is compiled stays in the tree, and few processes count lines.

    Where work is never pending, tests that hold it back are left out: they
    would wait without end.
    """
    if os.environ.get("OPENREG_LAUNCH") == "blocking":
        chosen = config.option.markexpr
        config.option.markexpr = (
            f"({chosen}) and not queued" if chosen else "not queued"
        )
    name = "TORCH_EXTENSIONS_DIR"
    unlock(Path(os.environ.setdefault(name, str(BUILD / "extensions"))))
    # One process in ten runs a line that no other runs, and all would start
    # a second later: so each that counts says so.
    if hasattr(config, "workerinput") and COUNTING in os.environ:
        _counting[COUNTING] = os.environ.pop(COUNTING)


def counting() -> dict[str, str]:
    """What is added to the environment of a process whose lines count."""
    return dict(_counting)


def unlock(folder: Path, seconds: float = 900) -> None:
    """Removes the locks that compilations have left which were killed.

    PyTorch 2.13 waits forever for them; no compilation here takes so long.
    """
    for lock in folder.glob("*/lock"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - lock.stat().st_mtime > seconds:
                lock.unlink()
