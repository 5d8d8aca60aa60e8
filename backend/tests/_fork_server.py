"""A program that has imported PyTorch and no backend, and forks processes.

Each line that it reads describes one. That takes its environment, arguments
and output, loads the backend as `import torch` does in the end, runs the code,
and leaves through Python's and C's exit, as every process does. Its status is
the answer. So a process begins without the seconds that PyTorch takes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import warnings
from typing import Any

import torch  # noqa: F401


def serve() -> dict[str, Any] | None:
    """Answers for its children; in each of them, returns what it is to do."""
    for line in sys.stdin:
        with warnings.catch_warnings(action="ignore"):
            child = os.fork()  # NumPy has threads, which know of forks
        if child == 0:
            asked: dict[str, Any] = json.loads(line)
            return asked
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def become(asked: dict[str, Any]) -> None:
    """Nothing is left of the server but what it has imported."""
    signal.alarm(asked["seconds"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    output = os.open(asked["output"], os.O_WRONLY)
    for file, number in (os.open(os.devnull, os.O_RDONLY), 0), (output, 1):
        os.dup2(file, number)
        os.close(file)
    os.dup2(1, 2)
    sys.argv[:] = ["-c", *asked["arguments"]]
    sys.path[0] = ""
    for library in os.environ.get("LD_PRELOAD", "").split():
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        import torch_openreg  # noqa: F401


def execute(source: str) -> None:
    """In the module `__main__`, as that of `python -c` would be."""
    code = compile(source, "<string>", "exec", dont_inherit=True)
    names = vars(sys.modules["__main__"])
    names.clear()
    names["__name__"] = "__main__"
    exec(code, names)


gc.freeze()  # what is imported here is not looked through at each exit
if asked := serve():
    become(asked)
    execute(asked["code"])
