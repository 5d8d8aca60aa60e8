"""What one run of the tests says to the processes that it starts."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

import machine
import releases
from _python import COUNTING, SETTINGS

BUILD = releases.places(releases.installed()).build
EXTENSIONS = "TORCH_EXTENSIONS_DIR"
_counting: dict[str, str] = {}


def settle(environ: MutableMapping[str, str]) -> list[str]:
    """Leaves what a user has set for other programs out, and says so.

    The suite itself sets these two.
    """
    said = []
    if names := machine.forget(environ, "OPENREG_LAUNCH", EXTENSIONS):
        said.append(f"Not passed on, though set: {', '.join(names)}.")
    if "OPENREG_LAUNCH" in environ:
        said.append(f"OPENREG_LAUNCH is {environ['OPENREG_LAUNCH']}.")
    # What compilers and sort say does not depend on the reader's country.
    environ["LC_ALL"] = "C.UTF-8"
    return said


def begin(config: pytest.Config) -> None:
    """What is compiled stays in the tree, and few processes count lines.

    PyTorch's CUDA build looks for nvcc and says so where there is no GPU.
    That would be in what programs print, so no compiler is to be found.

    Where work is never pending, tests that hold it back are left out: they
    would wait without end.
    """
    if os.environ.get("OPENREG_LAUNCH") == "blocking":
        chosen = config.option.markexpr
        config.option.markexpr = (
            f"({chosen}) and not queued" if chosen else "not queued"
        )
    os.environ |= {"CUDA_HOME": "", "CUDA_PATH": ""}
    # A cache would mix objects that count their lines with those that do not.
    os.environ["CCACHE_DISABLE"] = "1"
    # Inductor writes its code anew, and keeps what g++ made of it. A pool of
    # helpers, each with its own PyTorch, would cost more than it saves.
    os.environ |= {
        "TORCHINDUCTOR_CACHE_DIR": str(BUILD / "inductor"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    unlock(Path(os.environ.setdefault(EXTENSIONS, str(BUILD / "extensions"))))
    # One process in ten runs a line that no other runs, and all would start
    # a second later: so each that counts says so. A worker counts in one of
    # the modes, since that makes its Python a fifth slower.
    if hasattr(config, "workerinput") and COUNTING in os.environ:
        _counting[COUNTING] = os.environ.pop(COUNTING)
        if "OPENREG_LAUNCH" not in os.environ:
            stop_counting()
    if not SETTINGS:  # tests of this function are no session
        SETTINGS.update(os.environ)


def restore() -> None:
    """Takes back the variables that a test, or a library for it, has set.

    A process that has others than its fork server is a new interpreter, which
    begins two seconds later.
    """
    for name in os.environ.keys() | SETTINGS.keys():
        if name.startswith("PYTEST_"):
            continue
        if name not in SETTINGS:
            del os.environ[name]
        elif os.environ.get(name) != SETTINGS[name]:
            os.environ[name] = SETTINGS[name]


def stop_counting() -> None:
    from coverage import Coverage

    if counts := Coverage.current():
        counts.stop()


def await_exit(node: Any) -> None:
    """Lets a worker write at its exit what ran, however busy the machine is.

    After pytest-xdist's ten seconds it would be killed, and have run nothing.
    """
    node.nodemanager.EXIT_TIMEOUT = 600


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


# Before PyTorch is imported, and so before anything else here.
if "PYTEST_XDIST_WORKER" not in os.environ:
    for line in settle(os.environ):
        print(line, file=sys.stderr)
