"""The device's threads under TSan, ASan and UBSan: `nox -s sanitize` runs this.

Without PyTorch, which is not built with a sanitizer.
"""

import itertools
import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "backend" / "tests"

# Programs of backend/tests and the arguments that each is run with.
DRIVERS = {
    "device_threads.cpp": ["200"],
    "device_streams.cpp": ["stress", "exit"],
    "device_graphs.cpp": ["1000"],
    "pool_stress.cpp": ["20"],
    "outcome_threads.cpp": ["2000"],
}
LAUNCH_MODES = ["auto", "async", "blocking"]
SANITIZERS = {
    "thread": "-fsanitize=thread",
    "address": "-fsanitize=address,undefined",
}
# What each must find in device_planted.cpp.
PLANTED = {
    "thread": {"race": "ThreadSanitizer: data race"},
    "address": {
        "overflow": "AddressSanitizer: heap-buffer-overflow",
        "shift": "runtime error: shift exponent 40 is too large",
    },
}


def run(*command: str | Path, **env: str) -> None:
    print("$", *command, flush=True)
    done = subprocess.run(command, env={**os.environ, **env})
    if done.returncode:
        raise SystemExit(f"It ended with {done.returncode}: see above.")


def compile_driver(sanitizer: str, source: str) -> Path:
    path = TESTS / source
    folder = ROOT / "build" / "sanitize" / sanitizer
    links = (f"-L{folder}", "-lopenreg", "-Wl,-rpath,$ORIGIN")
    return compile_with(sanitizer, path.stem, path, *links)


def compile_with(sanitizer: str, output: str, *what: str | Path) -> Path:
    """Builds a program or library in the sanitizer's own folder."""
    folder = ROOT / "build" / "sanitize" / sanitizer
    folder.mkdir(parents=True, exist_ok=True)
    command = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    command += ["-std=c++20", "-O1", "-g", "-fPIC", "-pthread"]
    command += [SANITIZERS[sanitizer], "-fno-sanitize-recover=all"]
    run(*command, f"-I{ROOT / 'backend'}", *what, "-o", folder / output)
    return folder / output


def settings(mode: str) -> dict[str, str]:
    return {
        "OPENREG_LAUNCH": mode,
        "OPENREG_DEVICE_MEMORY": "64M",
        "OPENREG_SEGV_HANDLER": "0",  # the sanitizer has one of its own
    }


def find_planted(command: list[str | Path], report: str) -> None:
    """A sanitizer that is silent about a planted fault proves nothing."""
    env = {**os.environ, **settings("async")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == 0 or report not in done.stderr:
        raise SystemExit(f"Not found: {report}\n{done.stdout}{done.stderr}")
    print(f"Found, as planted: {report}", flush=True)


def main() -> None:
    for name in SANITIZERS:
        sources = sorted((ROOT / "backend" / "device").glob("*.cpp"))
        compile_with(name, "libopenreg.so", "-shared", *sources)
        for driver, ways in DRIVERS.items():
            program = compile_driver(name, driver)
            for way, mode in itertools.product(ways, LAUNCH_MODES):
                run(program, way, **settings(mode))
        program = compile_driver(name, "device_planted.cpp")
        for fault, report in PLANTED[name].items():
            find_planted([program, fault], report)


if __name__ == "__main__":
    main()
