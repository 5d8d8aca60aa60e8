"""Processes of their own, for what a test process can do only once."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import _python
import torch_openreg
import torch_openreg._C
from _device import PATIENCE, compiler
from _examples import EXAMPLES
from _python import AUTOLOAD


@functools.cache
def fork_server() -> str:
    """The socket of this process's own: see _fork_server.py."""
    address = f"{folder_of_process().name}/forks"
    process = subprocess.Popen(
        [sys.executable, Path(__file__).parent / "_fork_server.py", address],
        env=(_python.SETTINGS or os.environ) | {AUTOLOAD: "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # it listens
    atexit.register(process.communicate)
    return address


@functools.cache
def warm_python() -> Path:
    """A folder with a `python` that has imported PyTorch; see _python.py."""
    folder = Path(folder_of_process().name, "bin")
    folder.mkdir()
    program = folder / "python"
    source = Path(_python.__file__).read_text()
    program.write_text(f"#!{sys.executable} -SI\n{source}")
    program.chmod(0o755)
    return folder


def run(
    code: str, *arguments: str, new: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in its own process; standard error follows the output.

    It is forked from one that has imported PyTorch; it is a new interpreter
    where `new` says so, or where a variable is given that PyTorch may have
    read. It starts in the launch mode `auto`, whichever this process is in.
    """
    command = ["-c", textwrap.dedent(code), *arguments]
    variables = os.environ | {"OPENREG_LAUNCH": "auto"} | environment
    status = None
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        Path(os.devnull).open() as nothing,
    ):
        if not new:
            files = nothing.fileno(), output.fileno(), output.fileno()
            status = _python.ask(
                fork_server(), command, dict(variables), files, PATIENCE
            )
        if status is None:
            status = subprocess.run(
                [sys.executable, *command],
                env=variables,
                stdin=nothing,
                stdout=output,
                stderr=output,
                timeout=PATIENCE,
            ).returncode
        output.seek(0)
        return subprocess.CompletedProcess(code, status, output.read())


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
def library(source: Path) -> str:
    """The library of a C++ file, compiled for this process."""
    made = f"{folder_of_process().name}/{source.stem}.so"
    flags = "-std=c++20", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"
    here = f"-I{EXAMPLES.parent}"
    subprocess.run([*compiler(), *flags, here, source, "-o", made], check=True)
    return made


def omit_library() -> str:
    return library(EXAMPLES / "omit.cpp")


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
