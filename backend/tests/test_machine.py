"""What a machine lacks, what is stale and who waits is said in a sentence."""

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import machine

pytestmark = pytest.mark.one_mode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
START = (ROOT / "book" / "start.md").read_text("utf-8")
GOOD = machine.Machine("Linux", "x86_64", (3, 11), True, True, (), True)


@pytest.mark.parametrize(
    ("change", "what", "says"),
    [
        ({"machine": "aarch64", "python": machine.PYTHONS[1]}, None, ""),
        (
            {"system": "Darwin", "machine": "arm64"},
            "platform",
            "not Darwin on arm64: use a virtual machine",
        ),
        ({"machine": "riscv64"}, "platform", "not Linux on riscv64: use a"),
        ({"python": (3, 10)}, "python", "not 3.10: install it"),
        ({"python": (4, 0)}, "python", "not 4.0: install it"),
        ({"venv": False}, "venv", "Debian: apt-get install python3-venv"),
        ({"headers": False}, "headers", "Fedora: dnf install python3-devel"),
        ({"compilers": ("No c++.",)}, "compiler", "No c++."),
        ({"git": False}, "git", "apt-get install git"),
    ],
)
def test_each_lack_is_a_line(
    change: dict[str, Any], what: str | None, says: str
) -> None:
    found = machine.lacks(GOOD._replace(**change))
    assert list(found) == ([what] if what else [])
    assert all(says in line and "\n" not in line for line in found.values())


def test_all_that_is_missing_is_said_at_once() -> None:
    bare = GOOD._replace(venv=False, headers=False, git=False)
    assert list(machine.lacks(bare)) == ["venv", "headers", "git"]


def test_this_machine_lacks_nothing() -> None:
    assert machine.lacks(machine.look()) == {}


def test_readme_and_pyproject_name_the_same() -> None:
    for number, tool in enumerate(("apt-get", "dnf")):
        (named,) = re.findall(rf"`{tool} install ([^`]+)`", README)
        packages = {row[number] for row in machine.PACKAGES.values()}
        assert set(named.split()) == packages
        assert all(f"`{package}`" in START for package in packages)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    oldest, newest = machine.PYTHONS
    assert project["project"]["requires-python"] == (
        f">={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    )
    classified = re.findall(
        r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"])
    )
    assert classified == [f"3.{n}" for n in range(oldest[1], newest[1] + 1)]


def test_ci_asks_for_the_packages_that_are_missing() -> None:
    """As a program, also in a Python that has nothing installed."""
    command = [
        sys.executable,
        "-I",
        str(ROOT / ".ci" / "machine.py"),
        "--debian",
    ]
    env = {"PATH": "/nowhere"}
    said = subprocess.check_output(command, env=env, text=True)
    assert said.split() == ["g++", "git"]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that is the compiler which CXX names."""
    path = tmp_path / "our c++"
    path.write_text('#!/bin/sh\nexec c++ "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", f"'{path}' -O0 -Wall")
    return path


def fault() -> str | None:
    return machine.compiler_fault("CXX", "c++", machine.PROBE)


def test_a_compiler_may_have_flags_and_a_program_before_it(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fault() is None
    monkeypatch.setenv("CXX", "env c++ -g0")
    assert fault() is None
    assert machine.words("CXX", "c++") == ["env", "c++", "-g0"]


def test_a_compiler_that_does_not_do_is_named(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -std=c++98\n')
    said = fault()
    assert said is not None
    assert "our c++' -O0 -Wall does not compile C++20 (" in said
    assert "error" in said
    assert "g++ 12 or newer is needed (Debian: apt-get install g++;" in said
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert fault() == (
        "There is no no-such-compiler, which CXX names: unset CXX, or name a "
        "C++20 compiler in it (g++ 12 or newer)."
    )
    monkeypatch.setenv("CXX", "g++ '-O1")
    assert str(fault()).startswith("There is no g++ '-O1, which CXX names")
    monkeypatch.setenv("CXX", "false")
    assert "false does not compile C++20 (it ended with 1)" in str(fault())
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert str(fault()).startswith("There is no C++20 compiler; g++ 12")
    of_c = machine.compiler_fault("CC", "cc", "int main(void) { return 0; }")
    assert str(of_c).startswith("There is no C compiler; gcc 12 or newer")


def test_another_compiler_is_noticed(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine.compilers()
    assert machine.compilers() == first
    os.utime(compiler, (1, 1))
    updated = machine.compilers()
    assert updated != first
    monkeypatch.delenv("CXX")
    assert machine.compilers() not in (first, updated)


@pytest.mark.parametrize(
    ("free", "chosen", "refused"),
    [
        ((1, 3), True, None),
        ((4, 20), False, None),
        ((1, 3), False, "/tmp has 1.0 GB free, and 3 are needed"),
        ((4, 3), False, "/clone has 3.0 GB free, and 6 are needed"),
        ((0.2, 3), True, "/tmp has 0.2 GB free, and 0.4 are needed"),
        ((1, 1), True, "/clone has 1.0 GB free, and 2 are needed"),
    ],
)
def test_what_is_fetched_must_fit(
    free: tuple[float, float], chosen: bool, refused: str | None
) -> None:
    places = {"/tmp": free[0] * 1e9, "/clone": free[1] * 1e9}
    if refused:
        with pytest.raises(OSError, match=refused):
            machine.room(places, chosen)
        return
    assert machine.room(places, chosen) == (
        "0.4 GB to download and 2 GB on disk with PyTorch's CPU build, "
        "3 GB to download and 6 GB on disk with PyTorch's CUDA build"
    )


def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.full(tmp_path) is None
    # As much as a precompiled header that was not written leaves free.
    usage = machine.shutil.disk_usage(tmp_path)._replace(free=79_000_000)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage)
    assert str(machine.full(tmp_path)) == (
        f"The disk of {tmp_path} is full (79 MB are free): make room and run "
        "this again."
    )


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """What `python -m venv` writes, and the stamp of a whole environment."""
    folder = tmp_path / "with space" / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    (folder / "stamp").touch()
    (folder / "pyvenv.cfg").write_text(
        f"home = /usr/bin\nversion = {sys.version.split()[0]}\n"
        f"command = /usr/bin/python3 -m venv {folder}\n"
    )
    return folder


def stale(env: Path) -> str | None:
    return machine.stale(env, env / "stamp")


def test_an_environment_that_fits_is_kept(env: Path) -> None:
    assert stale(env) is None
    assert stale(env.parent / "none") is None


def test_an_environment_of_another_python_is_stale(env: Path) -> None:
    config = env / "pyvenv.cfg"
    here = ".".join(map(str, sys.version_info[:2]))
    text = re.sub("version = .*", "version = 3.9.2", config.read_text())
    config.write_text(text)
    assert stale(env) == f"{env} was made by Python 3.9, and this is {here}"


def test_a_moved_or_copied_environment_is_stale(env: Path) -> None:
    moved = env.rename(env.with_name("moved"))
    assert stale(moved) == f"{moved} was made as {env}"
    env.mkdir()
    assert stale(moved) == f"{moved} was made as {env}"
    env.rmdir()
    env.symlink_to(moved)  # another name of the same folder
    assert stale(moved) is None


@pytest.mark.parametrize("lost", ["stamp", "bin/python"])
def test_an_environment_made_by_half_is_stale(env: Path, lost: str) -> None:
    (env / lost).unlink()
    assert "was left half made, or its Python is gone" in str(stale(env))


def test_a_space_in_the_clones_path_is_said() -> None:
    assert machine.spaced(Path("/home/me/book")) is None
    said = str(machine.spaced(Path("/home/me/my book")))
    assert said.startswith("There is a space in /home/me/my book, where PyT")


def test_a_users_settings_are_forgotten_and_named() -> None:
    environ = {
        "OPENREG_DEVICE_COUNT": "1",
        "PYTHONWARNINGS": "error",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PATH": "/bin",
        "PIP_EXTRA_INDEX_URL": "x",
        "OMP_NUM_THREADS": "4",
    }
    kept = list(environ)[3:]
    assert machine.forget(environ) == [
        *("OPENREG_DEVICE_COUNT", "PYTHONWARNINGS"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
    ]
    assert list(environ) == kept
    assert machine.forget(environ) == []


WAIT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import machine
say = lambda text: print(text, flush=True)
machine.take_turn(Path(sys.argv[2]), "docs", say)
print("its turn", flush=True)
"""


def test_a_second_command_waits_and_says_for_whom(tmp_path: Path) -> None:
    lock = tmp_path / "turn"
    said: list[str] = []
    machine.take_turn(lock, "tests", said.append)
    machine.take_turn(lock, "lint", said.append)  # of the same run
    command = [sys.executable, "-c", WAIT, str(ROOT / ".ci"), str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == (
            f"Waiting for nox -s tests (process {os.getpid()}), which works "
            "in this clone.\n"
        )
        machine.end_turn()
        assert other.stdout.readline() == "its turn\n"
    assert said == []


def test_a_busy_port_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert machine.busy(port)
    assert not machine.busy(port)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_build_shows_how_far_it_is(
    terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = 'for i in $(seq 0 12); do echo "  [$i/12] Building"; done'
    command = ["sh", "-c", f"{steps}; echo noise; exit $STATUS"]
    assert machine.follow(command, {"STATUS": "0"}, terminal) is None
    shown = capsys.readouterr().out
    every = "".join(f"[{i}/12]\r" for i in range(1, 13))
    assert shown == (every if terminal else "[10/12]\n")
    failed = machine.follow(command, {"STATUS": "1"}, terminal)
    assert str(failed).endswith("noise\n")


def test_of_a_failed_build_the_fault_is_shown() -> None:
    noise = [f"[{n}/57] Building\n" for n in range(50)]
    fault = ["FAILED: x.o\n", "x.cpp:1: error: no\n"]
    assert machine.telling([*noise, *fault, "[51/57]\n"])[:2] == fault
    cmake = ["CMake Error at CMakeLists.txt:5\n", "  No Python.\n"]
    assert machine.telling([*noise, *cmake]) == cmake
    assert machine.telling(noise) == noise[-40:]
