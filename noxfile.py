"""Commands of the project: `nox -s docs`, `nox -s tests` and the rest.

All sessions share one environment, .nox/shared, since PyTorch is large. It
and both builds are made when a command first needs them, and anew only when
what they are made from has changed. After -- `--torch 2.14.1` chooses another
release of PyTorch, which has its own; .ci/releases.py says where.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / ".ci"))
import machine  # noqa: E402
import releases  # noqa: E402
import rooms  # noqa: E402
from machine import changed, site_packages  # noqa: E402
from suite import AT_ONCE, PYTEST, SUITE  # noqa: E402

TORCH, SHARED, RELEASE, BUILD, SITE = releases.places(releases.asked(sys.argv))
INTEROP = ROOT / ".nox" / "interop"
CHECKED_TREE = BUILD / "checked"
PROOF = BUILD / "proof"
PROOF_PROGRAM = ROOT / "book" / "_ext" / "proof.py"

# Who looks on sees each step; a log has what went wrong.
QUIET = () if sys.stdout.isatty() else ("--quiet",)
# What Sphinx keeps from one print to the next stays outside the site.
PRINT = ("sphinx-build", "-j", "auto", "-d", str(SITE.parent / "doctrees"))
SILENT = "q" if QUIET else ""

# pip in our environments, whatever the user has set up for others. Autoload is
# off so that a broken backend cannot stop it.
PIP = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_USER": "0",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "docs", "tests"]
# Nobody here asked for uv.
logging.getLogger("nox").addFilter(lambda r: "uv binary" not in r.getMessage())


def run(session: nox.Session, *command: str | Path, **env: str) -> None:
    """Runs a tool of the shared environment, or of the path given."""
    program, *arguments = map(str, command)
    if long := len(arguments) > 40:  # a list of files
        session.log(f"{program}, for {len(arguments)} arguments")
    try:
        session.run(
            program if os.sep in program else str(SHARED / "bin" / program),
            *arguments,
            external=True,
            env=variables(**env),
            silent="--install" in arguments,  # CMake names each file
            log=not long,
        )
    except CommandFailed:
        if full := machine.full(ROOT, Path(tempfile.gettempdir())):
            fail(session, full)
        raise


def variables(**env: str) -> dict[str, str]:
    """What a tool of the shared environment finds set."""
    return {
        "PATH": f"{SHARED / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(SHARED),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()),
        # What compilers and sort say does not depend on the reader's country.
        "LC_ALL": "C.UTF-8",
        **env,
    }


def fail(session: nox.Session, why: str) -> NoReturn:
    """Ends the session; nox puts a full stop after what is said."""
    session.error(why.removesuffix("."))


def pip_install(session: nox.Session, env: Path, *arguments: str) -> None:
    command = (env / "bin" / "python", "-m", "pip", "install")
    run(session, *command, *QUIET, *arguments, **PIP)


def pip_build(session: nox.Session, venv: Path, *arguments: str) -> None:
    """pip builds the backend; ninja's count is shown as it grows."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "-v"]
    command += ["--no-build-isolation", "--no-deps", *arguments, str(ROOT)]
    session.log(" ".join(command))
    env = {**os.environ, **variables(**PIP)}
    if fault := machine.follow(command, env, terminal=not QUIET):
        print(fault)
        if full := machine.full(ROOT):
            fail(session, full)
        raise CommandFailed("pip failed")


def make_venv(session: nox.Session, env: Path) -> None:
    if not (env / "bin" / "pip").exists():  # which comes last
        shutil.rmtree(env, ignore_errors=True)
        run(session, sys.executable, "-m", "venv", env)


def dependency_groups() -> dict[str, list[str]]:
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    groups: dict[str, list[str]] = project["dependency-groups"]
    return groups


def check(session: nox.Session) -> None:
    """Refuses a machine that lacks something, before anything is fetched."""
    stamp = ROOT / ".nox" / "machine.stamp"
    if text := changed(stamp, sys.version, machine.compilers()):
        if missing := machine.lacks(machine.look()):
            fail(session, "\n  ".join(missing.values()))
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(text)
    if why := machine.spaced(ROOT):
        session.warn(f"{why}; all else works here.")
    # Who names a test may name a launch mode; the run of all goes through each.
    chosen = session.name == "tests" and session.posargs
    kept = ["OPENREG_LAUNCH"] if chosen else []
    if names := machine.forget(os.environ, *kept):
        session.log(f"Not passed on, though set: {', '.join(names)}.")
    for name in kept:
        if name in os.environ:
            session.log(f"Passed on: {name}={os.environ[name]}.")


def environment(session: nox.Session) -> None:
    """Everything that pyproject.toml's dependency groups list.

    From here on no other command works in this clone.
    """
    check(session)
    machine.take_turn(ROOT / ".nox" / "turn", session.name, session.log)
    # What one session needs is installed by it.
    needs = [f"torch=={TORCH}"] + [
        n
        for name, group in dependency_groups().items()
        if name not in ("site", "interop")
        for n in group
    ]
    stamp = SHARED / "dependencies.stamp"
    if why := machine.stale(SHARED, stamp):
        session.log(
            f"{why}, so it and the builds are removed "
            "(which can take minutes) and made anew."
        )
        for old in (RELEASE, BUILD, SHARED):
            shutil.rmtree(old, ignore_errors=True)
    if text := changed(stamp, needs):
        # What is stopped half way has no stamp, and is made anew.
        stamp.unlink(missing_ok=True)
        try:
            make_venv(session, SHARED)
            if not (site_packages(SHARED) / "torch").exists():
                say_what_it_takes(session)
            pip_install(session, SHARED, *needs)
        except CommandFailed:
            fail(
                session,
                "The environment could not be made: mend what is reported "
                "above (network?) and run this again",
            )
        stamp.write_text(text)


def say_what_it_takes(session: nox.Session) -> None:
    """The size of what is fetched, which must also fit."""
    python = str(SHARED / "bin" / "python")
    pip = (python, "-m", "pip", "config", "list")
    places = (Path(tempfile.gettempdir()), ROOT)
    said = subprocess.run(pip, capture_output=True, text=True).stdout
    try:
        sizes = machine.room(
            {str(path): shutil.disk_usage(path).free for path in places},
            "index-url" in said or "find-links" in said,
        )
    except OSError as error:
        fail(session, str(error))
    session.log(f"Installing PyTorch and the tools, once, for all: {sizes}.")


def settle(session: nox.Session, tree: Path) -> None:
    """Removes a build tree that another compiler or half a CMake has made."""
    stamp = tree / "compiler.stamp"
    text = changed(stamp, machine.compilers())
    other = text and stamp.exists()
    if tree.exists() and (other or not (tree / "build.ninja").exists()):
        session.log(f"{tree} is from another compiler or half made: anew.")
        shutil.rmtree(tree)
    if text:
        tree.mkdir(parents=True, exist_ok=True)
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
    settle(session, CHECKED_TREE)
    try:
        if text or not (CHECKED_TREE / "build.ninja").exists():
            session.log("Building the backend; the first time takes minutes.")
            settings = ("cmake.build-type=Checked", f"build-dir={CHECKED_TREE}")
            chosen = (f"--config-settings={setting}" for setting in settings)
            pip_build(session, SHARED, *chosen, "-e")
            stamp.write_text(text or stamp.read_text())
        else:
            run(session, "cmake", "--build", CHECKED_TREE, "--", *QUIET)
            prefix = ("--prefix", site_packages(SHARED))
            install = ("cmake", "--install", CHECKED_TREE, *prefix)
            run(session, *install)
    except CommandFailed:
        fail(
            session,
            "The backend was not built: the first error above says where",
        )
    # What was counted before belongs to another run, maybe another build.
    for tree in (CHECKED_TREE, PROOF):
        for counts in tree.rglob("*.gcda"):
            counts.unlink()


@machine.session
def build(session: nox.Session) -> None:
    """Build the backend alone, as tests and site use it."""
    build_checked(session)


@machine.session
def new(session: nox.Session) -> None:
    """Make a package for a device of yours: -- NAME FOLDER, or -- --help."""
    run(session, sys.executable, ROOT / "backend/new/new.py", *session.posargs)


@machine.session
def docs(session: nox.Session) -> None:
    """Build the backend if needed and print the book; says where it is."""
    build_checked(session)
    try:
        run(session, *PRINT, f"-nWE{SILENT}", ROOT / "book", SITE)
    except CommandFailed:
        fail(session, "The book was not printed: each line above is a fault")
    session.log(f"The book: {(SITE / 'index.html').as_uri()}")


@machine.session
def site(session: nox.Session) -> None:
    """Print the book and use the site in Chromium, as readers do."""
    if not shutil.which(os.environ.get("CHROMIUM", "chromium")):
        fail(
            session,
            "There is no Chromium: install it (Debian: apt-get install "
            "chromium; Fedora: dnf install chromium), or name yours in "
            "CHROMIUM",
        )
    build_checked(session)
    needs = dependency_groups()["site"]
    stamp = SHARED / "site.stamp"
    if text := changed(stamp, needs):
        pip_install(session, SHARED, *needs)
        stamp.write_text(text)
    # Anew: from a page that has not changed, Sphinx 9.0 keeps no index entries.
    run(session, *PRINT, f"-nWE{SILENT}", ROOT / "book", SITE)
    tests = ROOT / "book" / "tests" / "site"
    run(session, *PYTEST, *(session.posargs or [*AT_ONCE, str(tests)]))


@machine.session
def interop(session: nox.Session) -> None:
    """Use the device from other packages; -- --record keeps what came of it."""
    build_checked(session)
    make_venv(session, INTEROP)
    # PyTorch and, since its .pth file is read, too, the backend.
    link = site_packages(INTEROP) / "shared.pth"
    shared = str(site_packages(SHARED))
    link.write_text(f"import site; site.addsitedir({shared!r})\n")
    groups = dependency_groups()
    # These stay those of the backend.
    needs = [*groups["interop"], f"torch=={TORCH}", groups["build"][0]]
    stamp = INTEROP / "interop.stamp"
    if text := changed(stamp, needs):
        pip_install(session, INTEROP, *needs)
        stamp.write_text(text)
    python = INTEROP / "bin" / "python"
    tests = ROOT / "backend" / "tests" / "interop"
    run(session, python, *PYTEST[1:], "-Wignore", tests, *session.posargs)


@machine.session
def tests(session: nox.Session) -> None:
    """Build the backend and run every test and page, or what follows --."""
    if not session.posargs and (why := machine.spaced(ROOT)):
        fail(session, f"{why}, or name those to run after --")
    build_checked(session)
    if what := session.posargs:
        plain = all(map(os.path.exists, what))  # no option of pytest's
        folder = plain and any(map(os.path.isdir, what))
        several = AT_ONCE if folder else ()
        run(session, *PYTEST, *several, *what, **compiler())
        return
    PROOF.mkdir(parents=True, exist_ok=True)
    if releases.current()[0] == TORCH:
        count_all(session)
        run(session, "python", PROOF_PROGRAM, CHECKED_TREE)
        return
    for mode, arguments in SUITE:  # the pages show another release's lines
        run(session, *PYTEST, *arguments, report(mode), **compiler(), **mode)


def report(mode: dict[str, str]) -> str:
    """Where .ci/record_versions.py finds what came of a run of tests."""
    return f"--junit-xml={PROOF / mode.get('OPENREG_LAUNCH', 'tests')}.xml"


def compiler() -> dict[str, str]:
    """One program for what tests compile, however many words CXX has."""
    folder = f"{PROOF_PROGRAM.parent / 'counting'}{os.pathsep}"
    return {
        "PATH": f"{folder}{SHARED / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CXX": "c++",
        "REAL_CXX": os.environ.get("CXX") or "c++",
    }


def counting() -> dict[str, str]:
    """Lets what tests and pages compile count the lines that run."""
    return {
        **compiler(),
        "COUNTS": str(PROOF / "examples"),
        "TORCH_EXTENSIONS_DIR": str(PROOF / "extensions"),
    }


def count_all(session: nox.Session) -> None:
    """Every test and page, and how often each line that the book shows runs.

    Compiled lines count themselves; programs of backend/examples do so when
    the compiler that is found first has compiled them. Counting costs Python
    a fifth, so where everything runs only the programs that pages start are
    counted, and of the shorter runs in other modes one is.
    """
    for old in [*PROOF.glob("coverage*"), PROOF / "proof.json"]:
        old.unlink(missing_ok=True)
    run(session, "python", PROOF_PROGRAM, "begin")
    counted = ("coverage", "run", "-m", "pytest")
    for command, suite in zip((counted, counted, PYTEST), SUITE, strict=True):
        mode, arguments = suite
        env = counting() | mode
        run(session, *command, *arguments, report(mode), **env)
    run(session, "coverage", "combine", "--quiet")
    # A page also runs files that are gone with its folder.
    run(session, "coverage", "json", "-qi", "-o", PROOF / "python.json")


@machine.session
def accept(session: nox.Session) -> None:
    """Write what examples print now into the pages; fail if one changed.

    The lists of messages and of PyTorch's stubs are recorded likewise.
    """
    build_checked(session)
    stubs = ROOT / "backend" / "tests" / "test_stubs.py"
    what = session.posargs or [str(ROOT / "book"), str(stubs)]
    chosen = ("-k", ".md or as_recorded", *what)
    run(session, *PYTEST, "--accept", *chosen, **compiler())


@machine.session
def stress(session: nox.Session) -> None:
    """Run long tests and those of concurrency, or all on a busy machine.

    After -- `busy` or `twice`, and how often, it is the whole suite.
    """
    build_checked(session)
    program = ROOT / ".ci" / "stress.py"
    run(session, "python", program, *session.posargs, **compiler())


@machine.session
def sanitize(session: nox.Session) -> None:
    """Run the device's threads under TSan, ASan and UBSan, without PyTorch."""
    check(session)
    run(session, sys.executable, ROOT / ".ci" / "sanitize.py")


@machine.session
def lint(session: nox.Session) -> None:
    """Check format, style and types, and print the budgets."""
    environment(session)
    machine.end_turn()
    run(session, "ruff", "format", "--check", ROOT)
    run(session, "ruff", "check", ROOT)
    run(session, "clang-format", "--dry-run", "-Werror", *rooms.cpp_files())
    run(session, "mypy", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    for what, lines, most in rooms.count():
        if lines > most:  # a budget, which only a decision record may raise
            fail(session, f"{what}: {lines} lines, at most {most} are allowed")
        session.log(f"{what}: {lines} lines of at most {most}")


@machine.session
def format(session: nox.Session) -> None:
    """Put code into the form that lint asks for, and mend listings' paths."""
    environment(session)
    machine.end_turn()
    run(session, "ruff", "check", "--fix", "--quiet", ROOT)
    run(session, "ruff", "format", ROOT)
    run(session, "clang-format", "-i", *rooms.cpp_files())
    run(session, "python", ROOT / "book" / "_ext" / "regions.py")


def install_release(session: nox.Session) -> Path:
    """The Python of an environment that has the release wheel."""
    environment(session)
    make_venv(session, RELEASE)
    # PyTorch comes from the shared environment. Its own .pth files, among
    # them the editable install's, are not read through such a line.
    link = site_packages(RELEASE) / "shared.pth"
    link.write_text(f"{site_packages(SHARED)}\n")
    tree = BUILD / "release"
    settle(session, tree)
    try:
        setting = f"--config-settings=build-dir={tree}"
        pip_build(session, RELEASE, "--force-reinstall", setting)
    except CommandFailed:
        fail(session, "The release wheel was not built: see the error above")
    return RELEASE / "bin" / "python"


@machine.session
def smoke(session: nox.Session) -> None:
    """Install the release wheel beside, not over, and use it once.

    Then install the package by the commands that the book gives.
    """
    run(session, install_release(session), ROOT / ".ci" / "smoke.py")
    build_checked(session)
    tests = ROOT / "backend" / "tests" / "test_build_install.py"
    run(session, *PYTEST, "-m", "smoke", tests)


@machine.session
def bench(session: nox.Session) -> None:
    """Print what the release build costs; -- --record FILE keeps it."""
    program = ROOT / "backend" / "tests" / "bench_device.py"
    run(session, install_release(session), program, *session.posargs)


@machine.session
def ops(session: nox.Session) -> None:
    """Ask device and CPU PyTorch's own databases; goes on if stopped."""
    program = ROOT / "backend" / "tests" / "sweep_operators.py"
    run(session, install_release(session), program, *session.posargs)


@machine.session
def serve(session: nox.Session) -> None:
    """Show the book and print it anew at each edit; -- --port N elsewhere."""
    parser = argparse.ArgumentParser(prog="nox -s serve --")
    parser.add_argument("--port", type=int, default=8000)
    chosen, others = parser.parse_known_args(session.posargs)
    if machine.busy(chosen.port):
        free = chosen.port + 1 if chosen.port < 65535 else 8000
        fail(
            session,
            f"Port {chosen.port} is busy, or there is none: name another, as "
            f"in nox -s serve -- --port {free}",
        )
    build_checked(session)
    machine.end_turn()
    watched = (f"--watch={ROOT / name}" for name in ("backend", "README.md"))
    live = ("sphinx-autobuild", "-n", *PRINT[1:], *watched, *others)
    run(session, *live, f"--port={chosen.port}", ROOT / "book", SITE)
