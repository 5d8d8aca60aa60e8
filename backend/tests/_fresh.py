"""Processes of their own, for what a test process can do only once."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import torch_openreg
import torch_openreg._C
from _device import PATIENCE, compiler
from _examples import EXAMPLES


class ForkServer:
    """Processes without the seconds that PyTorch takes; see _fork_server.py."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def begin(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "_fork_server.py"],
            env=os.environ | {AUTOLOAD: "0"},
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        atexit.register(self.process.communicate)
        return self.process

    def run(
        self, code: str, arguments: tuple[str, ...], **settings: Any
    ) -> subprocess.CompletedProcess[str]:
        server = self.process or self.begin()
        assert server.stdin is not None
        assert server.stdout is not None
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as output:
            asked = {"code": code, "arguments": arguments, **settings}
            asked["output"] = output.name
            print(json.dumps(asked), file=server.stdin, flush=True)
            status = int(server.stdout.readline())
            return subprocess.CompletedProcess(code, status, output.read())


_server = ForkServer()
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
# Nothing has read these before PyTorch loads a backend.
LATE = re.compile(f"{AUTOLOAD}|LD_PRELOAD|OMIT|OPENREG_.*|PYTORCH_ALLOC_CONF")


def run(
    code: str, *arguments: str, new: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in its own process; standard error follows the output.

    It is forked from one that has imported PyTorch; it is a new interpreter
    where `new` says so, or where a variable is given that PyTorch may have
    read. It starts in the launch mode `auto`, whichever this process is in.
    """
    code = textwrap.dedent(code)
    variables = os.environ | {"OPENREG_LAUNCH": "auto"} | environment
    if not new and all(map(LATE.fullmatch, environment)):
        settings = {"environment": dict(variables), "seconds": PATIENCE}
        return _server.run(code, arguments, **settings)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )


def prints(code: str, *arguments: str, **settings: Any) -> str:
    """What `code` prints; it must end well."""
    process = run(code, *arguments, **settings)
    assert process.returncode == 0, process.stdout
    return process.stdout


@functools.cache
def folder_of_process() -> tempfile.TemporaryDirectory[str]:
    """A folder for as long as this process lives, whatever it forks.

    Of what is to be done at exit a child of multiprocessing forgets all, and
    so the last reference to a folder that is only there: Python 3.14 would
    remove it.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return folder


@functools.cache
def omit_library() -> str:
    """The library of backend/examples/omit.cpp, compiled for this process."""
    folder = folder_of_process()
    source = EXAMPLES / "omit.cpp"
    library = f"{folder.name}/omit.so"
    flags = "-std=c++20", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"
    subprocess.run([*compiler(), *flags, source, "-o", library], check=True)
    return library


def without_kernel(kernel: str) -> dict[str, str]:
    """The variables of a process in which the backend lacks this kernel."""
    return {"LD_PRELOAD": omit_library(), "OMIT": kernel}


def copy_package(folder: Path) -> Path:
    """A second installation of the package, in `folder`, to break at will."""
    package = folder / "torch_openreg"
    sources = Path(torch_openreg.__file__).parent
    libraries = Path(torch_openreg._C.__file__).parent
    for source in {sources, libraries}:
        shutil.copytree(
            source,
            package,
            ignore=shutil.ignore_patterns("__pycache__", "csrc"),
            dirs_exist_ok=True,
        )
    return package


# An editable install finds its package before the path is searched.
USE_COPY = """
import sys
sys.meta_path = [
    finder for finder in sys.meta_path
    if "Redirecting" not in type(finder).__name__
]
sys.path.insert(0, sys.argv[1])
"""
