"""What only programs in C++ can ask: the pool alone, and PyTorch's allocators.

The first program needs no PyTorch, and the sanitizers watch it, too.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

import _device


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _device.build("pool_stress.cpp", tmp_path_factory.mktemp("pool"))


@pytest.mark.one_mode
@pytest.mark.proves("memory-nothing-lost")
@pytest.mark.parametrize(
    "rounds", [100, pytest.param(2000, marks=pytest.mark.stress)]
)
def test_threads_and_streams_lose_no_block(program: Path, rounds: int) -> None:
    done = subprocess.run(
        [program, str(rounds)],
        capture_output=True,
        text=True,
        timeout=_device.PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8 threads, 4 streams: nothing lost\n"


DEVICE_METHODS = ["raw_deleter"]
HOST_METHODS = [
    *("is_simple_data_ptr", "raw_deleter", "copy_data", "record_event"),
    *("begin_allocate_to_pool", "end_allocate_to_pool", "release_pool"),
]


@pytest.mark.proves(
    "memory.allocator.raw_deleter",
    "memory.host.is_simple_data_ptr",
    "memory.host.raw_deleter",
    "memory.host.copy_data",
    "memory.host.begin_allocate_to_pool",
    "memory.host.end_allocate_to_pool",
    "memory.host.release_pool",
    "memory.cache.copy_data",
    "memory.cache.get_current_stream",
    "memory.cache.stream_is_capturing",
)
@pytest.mark.one_mode
def test_the_methods_that_only_cpp_calls(tmp_path: Path) -> None:
    here = Path(__file__).parent
    ours = _device.library_path().parent
    torchs = Path(torch.__file__).parent / "lib"
    program = tmp_path / "pool_methods"
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    subprocess.run(
        [
            *_device.compiler(),
            *("-std=c++20", *includes, str(here / "pool_methods.cpp")),
            *("-Wl,--no-as-needed", f"-L{ours}", f"-L{torchs}"),
            *("-ltorch_openreg", "-lopenreg", "-ltorch_cpu", "-lc10"),
            *(f"-Wl,-rpath,{ours}", f"-Wl,-rpath,{torchs}"),
            *("-Wl,--disable-new-dtags", "-o", str(program)),
        ],
        check=True,
    )
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=_device.PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*DEVICE_METHODS, *HOST_METHODS]
    told = "was freed, but no tensor's memory begins there (any more)."
    assert done.stderr.count(told) == 1, done.stderr


@pytest.mark.proves("emulator.orThreadHasTurn")
def test_a_thread_knows_whether_it_has_a_turn() -> None:
    library = _device.library
    stream = _device.make_stream()
    with ThreadPoolExecutor(1) as another:
        assert library.orThreadHasTurn() == 0
        with _device.turn(stream), _device.turn(stream):
            assert library.orThreadHasTurn() == 1
            assert another.submit(library.orThreadHasTurn).result() == 0
        assert library.orThreadHasTurn() == 0
