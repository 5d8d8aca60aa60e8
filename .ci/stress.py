"""Tests at length, and on a machine that is busy: `nox -s stress` runs this.

Without arguments it runs the long tests once, and those of concurrency twenty
times over, half of them beside processes that take the cores away. `busy` runs
the whole suite beside such processes, `twice` runs two suites at once, and a
number after either says how often. All else goes to pytest, for long tests.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from suite import PYTEST, ROOT, SUITE, TESTS

# Tests whose outcome could depend on which thread comes first.
CONCURRENT = (
    "device_stream",
    "device_event",
    "device_exit",
    "device_graph",
    "stream",
    "event",
    "launch",
    "pool",
    "errors",
    "exit",
    "sharing",
    "host_allocator",
    "bindings",
    "distributed",
    "generator",
    "graph",
    "memory",
    "profiler",
    "trace",
)

# Of the whole suite: how many busy processes beside it, and how many at once.
WAYS = {"busy": (3, 1), "twice": (0, 2)}


def run_tests(
    settings: Mapping[str, str], *arguments: str, label: str = ""
) -> bool:
    """Runs pytest, shows what it says, and answers whether all passed."""
    with subprocess.Popen(
        [*PYTEST, *arguments],
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE if label else None,
        stderr=subprocess.STDOUT if label else None,
        text=True,
    ) as process:
        for line in process.stdout or ():
            # One write: another suite may write between two.
            print(f"{label} {line}", end="", flush=True)
    return process.returncode == 0


@contextlib.contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes that want a core each; they end with this one."""
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)
    ]
    try:
        yield others
    finally:
        for other in others:
            other.kill()
            other.wait()


def run_suite(label: str) -> bool:
    """The suite in every mode; what fails in one does not stop the next."""
    return all([run_tests(mode, *what, label=label) for mode, what in SUITE])


def run_suites(way: str, times: int) -> bool:
    others, at_once = WAYS[way]
    passed: list[bool] = []
    for turn in range(1, times + 1):
        print(f"The whole suite, {way}: {turn} of {times}.", flush=True)
        labels = [f"{number}:" for number in range(1, at_once + 1)]
        with busy(others), ThreadPoolExecutor(at_once) as pool:
            passed += pool.map(run_suite, labels)
    print(f"{sum(passed)} of {len(passed)} suites passed.")
    return all(passed)


def run_concurrent() -> bool:
    files = [
        str(path)
        for subject in CONCURRENT
        for path in sorted(TESTS.glob(f"test_{subject}*.py"))
    ]
    turns = itertools.product([0, 3], ["auto", "async"] * 5)
    for turn, (others, mode) in enumerate(turns, 1):
        way = f"OPENREG_LAUNCH={mode}, {others} busy processes beside"
        print(f"Concurrency, {turn} of 20, {way}.", flush=True)
        with busy(others):
            if not run_tests({"OPENREG_LAUNCH": mode}, *files):
                return False
    return True


def main(arguments: list[str]) -> bool:
    if arguments and arguments[0] in WAYS:
        way, *times = arguments
        return run_suites(way, int(*times or ["1"]))
    long = run_tests({}, "-m", "stress", *arguments)
    return long and (bool(arguments) or run_concurrent())


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else "Not all passed: see above.")
