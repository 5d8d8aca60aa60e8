"""Commands of the project: `nox -s docs`, `nox -s tests` and the rest.

All sessions share one environment, .nox/shared, since PyTorch is large. It
and both builds are made when a command first needs them, and anew only when
what they are made from has changed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent
SHARED = ROOT / ".nox" / "shared"
RELEASE = ROOT / ".nox" / "release"
CHECKED_TREE = ROOT / "build" / "checked"
PROOF = ROOT / "build" / "proof"
SITE = ROOT / "book" / "_build" / "html"
PROOF_PROGRAM = ROOT / "book" / "_ext" / "proof.py"

PYTEST = ("python", "-m", "pytest")
# A file, and so a page, is run by one process from its top to its end.
TWO_AT_A_TIME = (
    "--numprocesses=2",
    "--dist=loadfile",
    "--no-loadscope-reorder",  # the longest stand early in the alphabet
)
# What Sphinx keeps from one print to the next stays outside the site.
PRINT = ("sphinx-build", "-d", SITE.parent / "doctrees")

# Programs of backend/tests and the arguments that each is run with.
DRIVERS = {
    "device_threads.cpp": ["200"],
    "device_streams.cpp": ["stress", "exit"],
    "pool_stress.cpp": ["20"],
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

# Lines of code that each room may have, headers included.
ROOMS = {
    "backend/device": 3000,
    "backend/csrc/runtime": 2600,
    "backend/csrc/aten": 3200,
}

# Tests whose outcome could depend on which thread comes first.
CONCURRENT = (
    "device_stream",
    "device_event",
    "stream",
    "event",
    "launch",
    "pool",
    "errors",
)

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "docs", "tests"]


def refusal(
    system: str, machine: str, python: tuple[int, int], compiler: str | None
) -> str | None:
    """Why this machine cannot build the backend, and what would help."""
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        return (
            f"The emulated device needs Linux on x86-64 or aarch64, not "
            f"{system} on {machine}: use a virtual machine or a container."
        )
    if python < (3, 11):
        return (
            f"Python 3.11 or newer is needed, not {python[0]}.{python[1]}: "
            f"install it and run nox with it."
        )
    if compiler is None:
        return (
            "There is no C++ compiler: install g++ 12 or newer "
            "(Debian: apt-get install g++), or name yours in CXX."
        )
    return None


def run(session: nox.Session, *command: str | Path, **env: str) -> None:
    """Runs a tool of the shared environment, or of the path given."""
    program, *arguments = map(str, command)
    session.run(
        program if os.sep in program else str(SHARED / "bin" / program),
        *arguments,
        external=True,
        env={
            "PATH": f"{SHARED / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(SHARED),
            "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()),
            **env,
        },
    )


def pip_install(session: nox.Session, env: Path, *arguments: str) -> None:
    """pip, with autoload off so that a broken backend cannot stop it."""
    python = env / "bin" / "python"
    command = (python, "-m", "pip", "install", "--quiet", *arguments)
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(session, *command, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **quiet)


def changed(stamp: Path, *made_from: object) -> str | None:
    """A new text for the stamp if what it stands for has changed."""
    text = hashlib.sha256(repr(made_from).encode()).hexdigest()
    current = stamp.read_text() if stamp.exists() else None
    return None if text == current else text


def make_venv(session: nox.Session, env: Path) -> None:
    if not (env / "bin" / "python").exists():
        run(session, sys.executable, "-m", "venv", env)


def site_packages(env: Path) -> Path:
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return env / "lib" / python / "site-packages"


def dependency_groups() -> dict[str, list[str]]:
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    return project["dependency-groups"]


def environment(session: nox.Session) -> None:
    """Everything that pyproject.toml's dependency groups list."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    here = (platform.system(), platform.machine(), sys.version_info[:2])
    if why := refusal(*here, compiler):
        session.error(why)
    # The browser's tests are installed by the one session that runs them.
    needs = [
        n
        for name, group in dependency_groups().items()
        if name != "site"
        for n in group
    ]
    stamp = SHARED / "dependencies.stamp"
    if text := changed(stamp, needs):
        session.log("Installing the tools and PyTorch, once, for all commands.")
        try:
            make_venv(session, SHARED)
            pip_install(session, SHARED, *needs)
        except CommandFailed:
            session.error(
                "The environment could not be made: mend what is reported "
                "above (network? disk? python3-venv?) and run this again."
            )
        stamp.write_text(text)


def build_checked(session: nox.Session) -> None:
    """The editable install. Python edits need nothing, C++ edits only CMake."""
    environment(session)
    package = sorted((ROOT / "backend" / "torch_openreg").rglob("*.py*"))
    files = [ROOT / "pyproject.toml", ROOT / "backend" / "CMakeLists.txt"]
    stamp = SHARED / "checked.stamp"
    text = changed(
        stamp,
        [file.read_text() for file in files],
        [str(path) for path in package if path.suffix != ".pyc"],
    )
    try:
        if text or not CHECKED_TREE.exists():
            session.log("Building the backend; the first time takes minutes.")
            pip_install(
                session,
                SHARED,
                "--no-build-isolation",
                "--no-deps",
                "-Ccmake.build-type=Checked",
                f"-Cbuild-dir={CHECKED_TREE}",
                "-e",
                str(ROOT),
            )
            stamp.write_text(text or "")
        else:
            cmake = ("cmake", "--build", CHECKED_TREE)
            run(session, *cmake, "--", "--quiet")
            prefix = ("--prefix", site_packages(SHARED))
            run(session, "cmake", "--install", CHECKED_TREE, *prefix)
    except CommandFailed:
        session.error(
            "The backend was not built: the first error above says where."
        )
    # What was counted before belongs to another run, maybe another build.
    for tree in (CHECKED_TREE, PROOF):
        for counts in tree.rglob("*.gcda"):
            counts.unlink()


@nox.session
def build(session: nox.Session) -> None:
    """Build the backend alone, as tests and site use it."""
    build_checked(session)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the backend if needed and print the book; says where it is."""
    build_checked(session)
    try:
        run(session, *PRINT, "-nWEq", ROOT / "book", SITE)
    except CommandFailed:
        session.error("The book was not printed: each line above is a fault.")
    session.log(f"The book: {(SITE / 'index.html').as_uri()}")


@nox.session
def site(session: nox.Session) -> None:
    """Print what has changed and use the site in Chromium, as readers do."""
    if not shutil.which(os.environ.get("CHROMIUM", "chromium")):
        session.error(
            "There is no Chromium: install it (Debian: apt-get install "
            "chromium), or name yours in CHROMIUM."
        )
    build_checked(session)
    needs = dependency_groups()["site"]
    stamp = SHARED / "site.stamp"
    if text := changed(stamp, needs):
        pip_install(session, SHARED, *needs)
        stamp.write_text(text)
    run(session, *PRINT, "-nWq", ROOT / "book", SITE)
    tests = ROOT / "book" / "tests" / "site"
    run(session, *PYTEST, *(session.posargs or [*TWO_AT_A_TIME, tests]))


@nox.session
def tests(session: nox.Session) -> None:
    """Build the backend and run every test and page, or what follows --."""
    build_checked(session)
    if session.posargs:
        run(session, *PYTEST, *session.posargs)
        return
    count_all(session)
    # However work is launched, the same must come of it.
    again = (*PYTEST, *TWO_AT_A_TIME, ROOT / "backend" / "tests", "-m")
    for mode in ("async", "blocking"):
        env = {**counting(), "OPENREG_LAUNCH": mode}
        run(session, *again, "not stress and not one_mode", **env)
    run(session, "python", PROOF_PROGRAM, CHECKED_TREE)


def counting() -> dict[str, str]:
    """Lets what tests and pages compile count the lines that run."""
    compiler = f"{PROOF_PROGRAM.parent / 'counting'}{os.pathsep}"
    return {
        "PATH": f"{compiler}{SHARED / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CXX": "c++",
        "REAL_CXX": os.environ.get("CXX", "c++"),
        "COUNTS": str(PROOF / "examples"),
        "TORCH_EXTENSIONS_DIR": str(PROOF / "extensions"),
    }


def count_all(session: nox.Session) -> None:
    """Every test and page, and how often each line that the book shows runs.

    Compiled lines count themselves; programs of backend/examples do so when
    the compiler that is found first has compiled them.
    """
    PROOF.mkdir(parents=True, exist_ok=True)
    for old in [*PROOF.glob("coverage*"), PROOF / "proof.json"]:
        old.unlink(missing_ok=True)
    run(session, "python", PROOF_PROGRAM, "begin")
    report = f"--junit-xml={PROOF / 'tests.xml'}"
    pytest = ("coverage", "run", "-m", "pytest", *TWO_AT_A_TIME)
    run(session, *pytest, report, **counting())
    run(session, "coverage", "combine", "--quiet")
    # A page also runs files that are gone with its folder.
    run(session, "coverage", "json", "-qi", "-o", PROOF / "python.json")


@nox.session
def accept(session: nox.Session) -> None:
    """Write what examples print now into the pages; fail if one changed.

    The list of messages is recorded likewise.
    """
    build_checked(session)
    messages = ROOT / "backend" / "tests" / "test_messages.py"
    what = session.posargs or [ROOT / "book", messages]
    run(session, *PYTEST, "--accept", "-k", ".md or as_recorded", *what)


@nox.session
def stress(session: nox.Session) -> None:
    """Run the long tests once, and those of concurrency twenty times over."""
    build_checked(session)
    run(session, *PYTEST, "-m", "stress", *session.posargs)
    if session.posargs:
        return
    tests = ROOT / "backend" / "tests"
    files = [
        path
        for subject in CONCURRENT
        for path in sorted(tests.glob(f"test_{subject}*.py"))
    ]
    for turn in range(20):
        mode = ("auto", "async")[turn % 2]
        session.log(f"Concurrency, {turn + 1} of 20, OPENREG_LAUNCH={mode}.")
        run(session, *PYTEST, *files, OPENREG_LAUNCH=mode)


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the device's threads under TSan, ASan and UBSan, without PyTorch."""
    environment(session)
    for name, flag in SANITIZERS.items():
        session.log(f"Building the device with {flag}.")
        sources = sorted((ROOT / "backend" / "device").glob("*.cpp"))
        compile_with(session, name, "libopenreg.so", "-shared", *sources)
        for driver, ways in DRIVERS.items():
            program = compile_driver(session, name, driver)
            for way, mode in itertools.product(ways, LAUNCH_MODES):
                run(session, program, way, **settings(mode))
        program = compile_driver(session, name, "device_planted.cpp")
        for fault, report in PLANTED[name].items():
            find_planted(session, [program, fault], report)


def compile_driver(session: nox.Session, sanitizer: str, source: str) -> Path:
    path = ROOT / "backend" / "tests" / source
    links = ("-L.", "-lopenreg", "-Wl,-rpath,$ORIGIN")
    return compile_with(session, sanitizer, path.stem, path, *links)


def compile_with(
    session: nox.Session, sanitizer: str, output: str, *what: str | Path
) -> Path:
    """Builds a program or library in the sanitizer's own folder."""
    folder = ROOT / "build" / "sanitize" / sanitizer
    folder.mkdir(parents=True, exist_ok=True)
    compiler, *flags = shlex.split(os.environ.get("CXX", "c++"))
    flags += ["-std=c++20", "-O1", "-g", "-fPIC", "-pthread"]
    flags += [SANITIZERS[sanitizer], "-fno-sanitize-recover=all"]
    with session.chdir(folder):
        path = shutil.which(compiler) or compiler
        include = f"-I{ROOT / 'backend'}"
        run(session, path, *flags, include, *what, "-o", output)
    return folder / output


def settings(mode: str) -> dict[str, str]:
    return {
        "OPENREG_LAUNCH": mode,
        "OPENREG_DEVICE_MEMORY": "64M",
        "OPENREG_SEGV_HANDLER": "0",  # the sanitizer has one of its own
    }


def find_planted(
    session: nox.Session, command: list[str | Path], report: str
) -> None:
    """A sanitizer that is silent about a planted fault proves nothing."""
    env = {**os.environ, **settings("async")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == 0 or report not in done.stderr:
        session.error(f"Not found: {report}\n{done.stdout}{done.stderr}")
    session.log(f"Found, as planted: {report}")


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style and types, and print the budgets."""
    environment(session)
    run(session, "ruff", "format", "--check", ROOT)
    run(session, "ruff", "check", ROOT)
    run(session, "clang-format", "--dry-run", "-Werror", *cpp_files())
    run(session, "mypy", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    for room, most in ROOMS.items():
        files = [p for p in cpp_files() if p.is_relative_to(ROOT / room)]
        keep(session, room, sum(map(count_code, files)), most)
    machinery = [ROOT / "conftest.py", *(ROOT / "book" / "_ext").glob("*.py")]
    lines = sum(len(path.read_text().splitlines()) for path in machinery)
    keep(session, "book machinery, with comments", lines, 2000)


def keep(session: nox.Session, what: str, lines: int, most: int) -> None:
    """A budget, which only a decision record may raise."""
    if lines > most:
        session.error(f"{what}: {lines} lines, and at most {most} are allowed.")
    session.log(f"{what}: {lines} lines of at most {most}")


@nox.session
def format(session: nox.Session) -> None:
    """Put Python and C++ into the form that lint asks for."""
    environment(session)
    run(session, "ruff", "check", "--fix", "--quiet", ROOT)
    run(session, "ruff", "format", ROOT)
    run(session, "clang-format", "-i", *cpp_files())


def install_release(session: nox.Session) -> Path:
    """The Python of an environment that has the release wheel."""
    environment(session)
    make_venv(session, RELEASE)
    # PyTorch comes from the shared environment. Its own .pth files, among
    # them the editable install's, are not read through such a line.
    link = site_packages(RELEASE) / "shared.pth"
    link.write_text(f"{site_packages(SHARED)}\n")
    wheel = ("--no-build-isolation", "--no-deps", str(ROOT))
    try:
        pip_install(session, RELEASE, "--force-reinstall", *wheel)
    except CommandFailed:
        session.error("The release wheel was not built: see the error above.")
    return RELEASE / "bin" / "python"


@nox.session
def smoke(session: nox.Session) -> None:
    """Install the release wheel beside, not over, and use it once."""
    run(session, install_release(session), ROOT / ".ci" / "smoke.py")


@nox.session
def bench(session: nox.Session) -> None:
    """Print what the release build costs; -- --record FILE keeps it."""
    program = ROOT / "backend" / "tests" / "bench_device.py"
    run(session, install_release(session), program, *session.posargs)


@nox.session
def ops(session: nox.Session) -> None:
    """Ask device and CPU the whole operator database; goes on if stopped."""
    program = ROOT / "backend" / "tests" / "sweep_operators.py"
    run(session, install_release(session), program, *session.posargs)


@nox.session
def serve(session: nox.Session) -> None:
    """Show the book in a browser and print it anew at each edit."""
    build_checked(session)
    watched = (f"--watch={ROOT / name}" for name in ("backend", "README.md"))
    live = ("sphinx-autobuild", "-n", *PRINT[1:], *watched)
    run(session, *live, ROOT / "book", SITE)


def cpp_files() -> list[Path]:
    paths = (ROOT / "backend").rglob("*")
    return sorted(p for p in paths if p.suffix in (".c", ".cpp", ".h"))


def count_code(path: Path) -> int:
    """Lines of C or C++ that hold more than a comment."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)
