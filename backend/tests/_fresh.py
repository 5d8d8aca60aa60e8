"""Processes of their own, for what a test process can do only once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import torch_openreg
import torch_openreg._C


def run(
    code: str, *arguments: str, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a new interpreter; standard error follows the output.

    It starts in the launch mode `auto`, whichever this process is in.
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=os.environ | {"OPENREG_LAUNCH": "auto"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )


def prints(
    code: str, *arguments: str, timeout: float = 120, **environment: str
) -> str:
    """What `code` prints; it must end well."""
    process = run(code, *arguments, timeout=timeout, **environment)
    assert process.returncode == 0, process.stdout
    return process.stdout


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
