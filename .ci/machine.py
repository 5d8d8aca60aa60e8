"""What this machine lacks for the commands: noxfile.py and .ci/run ask.

Called as a program, it prints the Debian packages that are missing. Python 3.7
can run it, so that one which is too old is told so.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

# The Pythons for which PyTorch 2.13 has wheels, as pyproject.toml says.
PYTHONS = (3, 11), (3, 14)
# What may be missing -> its packages in Debian and Fedora.
PACKAGES = {
    "venv": ("python3-venv", "python3"),
    "headers": ("python3-dev", "python3-devel"),
    "compiler": ("g++", "gcc-c++"),
    "git": ("git", "git"),
}
# Gigabytes to download, and then on disk, with PyTorch's two builds.
SPACE = {"CPU": (0.4, 2.0), "CUDA": (3.0, 6.0)}

PROBE = """
#include <atomic>
#include <bit>
#include <concepts>
#include <span>
template <std::integral T>
T twice(std::span<const T> some) { return some.empty() ? T() : 2 * some[0]; }
std::atomic<int> count;
struct Named { int a = 0, b = 0; };
int main() {
  Named named{.a = 0, .b = std::bit_width(0u) ? 1 : 0};
  count.notify_all();
  return twice(std::span<const int>(&named.b, 1));
}
"""


class Machine(NamedTuple):
    system: str
    machine: str
    python: tuple[int, int]
    venv: bool  # can make environments, with pip in them
    headers: bool
    compilers: tuple[str, ...]  # a sentence for each that does not do
    git: bool


def install(what: str) -> str:
    debian, fedora = PACKAGES[what]
    return f"Debian: apt-get install {debian}; Fedora: dnf install {fedora}"


def lacks(machine: Machine) -> dict[str, str]:
    """What is missing -> a line that says so and what to do."""
    oldest, newest = (".".join(map(str, python)) for python in PYTHONS)
    found: dict[str, str] = {}
    if machine.system != "Linux" or machine.machine not in (
        "x86_64",
        "aarch64",
    ):
        found["platform"] = (
            "The emulated device needs Linux on x86-64 or aarch64, not "
            f"{machine.system} on {machine.machine}: use a virtual machine "
            "or a container."
        )
    if not PYTHONS[0] <= machine.python <= PYTHONS[1]:
        found["python"] = (
            f"Python {oldest} to {newest} is needed, not "
            f"{machine.python[0]}.{machine.python[1]}: install it, and make "
            ".venv with it (python3.X -m venv --clear .venv)."
        )
    if not machine.venv:
        found["venv"] = f"Python cannot make environments ({install('venv')})."
    if not machine.headers:
        found["headers"] = (
            f"Python's headers are missing ({install('headers')})."
        )
    if machine.compilers:
        found["compiler"] = " ".join(machine.compilers)
    if not machine.git:
        found["git"] = f"git is missing ({install('git')})."
    return found


def compiler_fault(variable: str, default: str, source: str) -> str | None:
    """Why a compiler, which may have words before and after it, will not do."""
    given = os.environ.get(variable, "").strip()
    program, *flags = words(variable, default)
    is_cpp = variable == "CXX"
    language, wanted = ("C++20", "g++ 12") if is_cpp else ("C", "gcc 12")
    if not shutil.which(program):
        if given:
            return (
                f"There is no {program}, which {variable} names: unset "
                f"{variable}, or name a {language} compiler in it ({wanted} "
                "or newer)."
            )
        return (
            f"There is no {language} compiler; {wanted} or newer is needed "
            f"({install('compiler')})."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probe.cpp" if is_cpp else "probe.c")
        path.write_text(source, "utf-8")
        flags += ["-std=c++20"] if is_cpp else []
        command = [program, *flags, str(path), "-o", f"{folder}/probe"]
        done = subprocess.run(command, capture_output=True, cwd=folder)
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    why = next((line for line in said if "error" in line), " ".join(said[:1]))
    why = why or f"it ended with {done.returncode}"
    return (
        f"{given or default} does not compile {language} ({why}); {wanted} or "
        f"newer is needed ({install('compiler')}), or name one in {variable}."
    )


def look() -> Machine:
    """What this machine has; it compiles a few lines to know."""
    faults = (
        compiler_fault("CXX", "c++", PROBE),
        compiler_fault("CC", "cc", "int main(void) { return 0; }\n"),
    )
    include = sysconfig.get_path("include")
    return Machine(
        platform.system(),
        platform.machine(),
        sys.version_info[:2],
        bool(find_spec("ensurepip") and find_spec("venv")),
        Path(include, "Python.h").exists(),
        # One package has both, so one sentence is enough.
        tuple(fault for fault in faults if fault)[:1],
        shutil.which("git") is not None,
    )


def room(free: dict[str, float], chosen: bool) -> str:
    """Says what PyTorch and the tools will take, in gigabytes, or refuses.

    `free` is that of the folder for temporary files and of the clone;
    `chosen`: pip has been told where to look, so it may find the CPU build.
    """
    need = SPACE["CPU" if chosen else "CUDA"]
    sizes = ", ".join(
        f"{SPACE[name][0]:g} GB to download and {SPACE[name][1]:g} GB on disk "
        f"with PyTorch's {name} build"
        for name in SPACE
    )
    for place, least in zip(free, need, strict=True):
        if free[place] < least * 1e9:
            raise OSError(
                f"{place} has {free[place] / 1e9:.1f} GB free, and {least:g} "
                f"are needed ({sizes}; README.md says how to choose)"
            )
    return sizes


def full(*places: Path) -> str | None:
    """A sentence if a disk is full, which few programs say clearly.

    g++ removes a precompiled header, of 315 MB, that it could not write.
    """
    for place in places:
        free = shutil.disk_usage(place).free
        if free < 350e6:
            return (
                f"The disk of {place} is full ({free / 1e6:.0f} MB are free): "
                "make room and run this again."
            )
    return None


def session(command: Callable[[Any], None]) -> Any:
    """nox's, for a release of PyTorch; no traceback where the disk is full."""
    import nox  # which is installed after this file has first run

    import releases

    @functools.wraps(command)
    def run(session: Any) -> None:
        asked = releases.asked(sys.argv)
        if why := releases.refusal(asked, session.posargs, session.name):
            session.error(why)
        if session.name != "new":  # which has that option itself
            session.posargs[:] = releases.others(session.posargs)
        try:
            command(session)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            folders = Path.cwd(), Path(tempfile.gettempdir())
            again = f"{error}: make room and run this again"
            session.error(full(*folders) or again)

    return nox.session(run)


def words(variable: str, default: str) -> list[str]:
    """A compiler that a variable names, with its flags."""
    try:
        return shlex.split(os.environ.get(variable, "")) or [default]
    except ValueError:
        return [os.environ[variable]]  # a name that no program has


def compilers() -> list[object]:
    """What objects depend on that CMake does not look at again."""
    found = []
    for command in (words("CXX", "c++"), words("CC", "cc")):
        files = [shutil.which(word) for word in command]
        paths = [os.path.realpath(file) for file in files if file]
        found += [command, paths, [os.path.getmtime(path) for path in paths]]
    return found


def changed(stamp: Path, *made_from: object) -> str | None:
    """A new text for the stamp if what it stands for has changed."""
    text = hashlib.sha256(repr(made_from).encode()).hexdigest()
    current = stamp.read_text() if stamp.exists() else None
    return None if text == current else text


def site_packages(env: Path) -> Path:
    return next((env / "lib").glob("python3*/site-packages"))


def stale(env: Path, stamp: Path) -> str | None:
    """Why an environment cannot be used any more."""
    if not env.exists():
        return None
    python = env / "bin" / "python"
    if not (stamp.exists() and python.exists()):
        return f"{env} was left half made, or its Python is gone"
    text = (env / "pyvenv.cfg").read_text("utf-8")
    made = dict(line.split(" = ", 1) for line in text.splitlines())
    here = ".".join(map(str, sys.version_info[:2]))
    version = ".".join(made["version"].split(".")[:2])
    if version != here:
        return f"{env} was made by Python {version}, and this is {here}"
    path = Path(made["command"].partition(" -m venv ")[2])
    if not (path.exists() and path.samefile(env)):
        return f"{env} was made as {path}"
    return None


def spaced(clone: Path) -> str | None:
    """What PyTorch cannot do in such a folder, of all that tests try."""
    if not re.search(r"\s", str(clone)):
        return None
    return (
        f"There is a space in {clone}, where PyTorch 2.13 links no extension "
        "(torch.utils.cpp_extension does not quote its own folder): the tests "
        "need a clone elsewhere"
    )


# What a user has set for programs of their own would change what is built,
# tested and printed here.
FOREIGN = re.compile(
    r"(OPENREG|TORCH|PYTORCH|ATEN)_.*|PYTHON(HOME|OPTIMIZE|PATH|WARNINGS)"
)


def forget(environ: MutableMapping[str, str], *but: str) -> list[str]:
    """Removes such variables but some, and names them."""
    names = sorted({n for n in environ if FOREIGN.fullmatch(n)} - {*but})
    for name in names:
        del environ[name]
    return names


# The open file that other commands wait for.
TURN: list[int] = []


def take_turn(path: Path, name: str, say: Callable[[str], None]) -> None:
    """Waits until no other command works in this clone."""
    import fcntl  # which Windows has not

    if TURN:
        return
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"Waiting for {path.read_text()}, which works in this clone.")
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.truncate(lock, 0)
    os.pwrite(lock, f"nox -s {name} (process {os.getpid()})".encode(), 0)
    TURN.append(lock)


def end_turn() -> None:
    os.close(TURN.pop())


def busy(port: int) -> bool:
    """Whether another program listens there."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return True
    return False


def follow(
    command: Sequence[str], env: Mapping[str, str], terminal: bool
) -> str | None:
    """Runs a build, of which ninja's count is shown; why it failed, if so."""
    said = []
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            said.append(line)
            step = re.search(r"\[([1-9]\d*)/\d+\]", line)
            if step and (terminal or step[1].endswith("0")):
                print(step[0], end="\r" if terminal else "\n", flush=True)
    return "".join(telling(said)) if process.returncode else None


def telling(said: list[str]) -> list[str]:
    """Of what a failed build said, the part that begins with the fault."""
    for mark in ("FAILED:", "CMake Error", "error:", "ERROR:"):
        for number, line in enumerate(said):
            if mark in line:
                return said[number:]
    return said[-40:]


if __name__ == "__main__":
    missing = lacks(look())
    if "--debian" in sys.argv:
        print(*(PACKAGES[what][0] for what in missing if what in PACKAGES))
    else:
        print(*missing.values(), sep="\n")
        sys.exit(1 if missing else 0)
