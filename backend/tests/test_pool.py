"""The pool without PyTorch: a program that the sanitizers watch, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import _device


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _device.build("pool_stress.cpp", tmp_path_factory.mktemp("pool"))


@pytest.mark.parametrize(
    "rounds", [100, pytest.param(2000, marks=pytest.mark.stress)]
)
def test_threads_and_streams_lose_no_block(program: Path, rounds: int) -> None:
    done = subprocess.run(
        [program, str(rounds)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8 threads, 4 streams: nothing lost\n"
