"""README, commands and map say what is there; refusals say what to do."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from nox.command import CommandFailed

import _fresh
import _python
import _session
import noxfile
import releases
import sanitize
import stress

pytestmark = pytest.mark.one_mode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def run_nox(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nox", "-f", ROOT / "noxfile.py", *arguments],
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def sessions() -> dict[str, str]:
    listed = run_nox("--list").stdout
    return dict(re.findall(r"^[-*] (\w+) -> (.*)$", listed, re.M))


def test_commands_of_the_readme_are_sessions(sessions: dict[str, str]) -> None:
    named = set(re.findall(r"nox -s (\w+)", README))
    assert {"docs", "tests"} <= named <= set(sessions)


def test_nox_lists_a_line_for_each_command(sessions: dict[str, str]) -> None:
    assert all(0 < len(line) <= 72 for line in sessions.values()), sessions


def test_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    exec(example, {})
    assert capsys.readouterr().out == "tensor([3., 3., 3.])\n"


def test_map_is_the_tree() -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \|", README, re.M))
    top = {path for path in ROOT.iterdir() if path.name[0] != "."}
    inner = {p for name in ("backend", "book") for p in (ROOT / name).iterdir()}
    unmapped = {"build", "_build", "__pycache__"}
    tree = {
        path.relative_to(ROOT).as_posix() + "/" * path.is_dir()
        for path in top | inner
        if path.name not in unmapped
        and (path.is_file() or any(path.rglob("*.*")))
    }
    assert rows == tree


def test_each_seam_has_the_test_that_the_map_promises() -> None:
    promised = "`test_hooks.py` judges `csrc/runtime/hooks.cpp`, and so on"
    assert promised in README
    for source in (ROOT / "backend" / "csrc" / "runtime").glob("*.cpp"):
        assert (ROOT / f"backend/tests/test_{source.stem}.py").exists(), source


def make_clone(folder: Path, *commands: str) -> list[str]:
    """A clone in which nox is a script that says how it was called."""
    (folder / ".ci").mkdir()
    for name in ("run", "machine.py"):
        shutil.copy(ROOT / ".ci" / name, folder / ".ci")
    nox = folder / ".venv" / "bin" / "nox"
    nox.parent.mkdir(parents=True)
    nox.write_text('#!/bin/sh\necho "nox $*"\n')
    nox.chmod(0o755)
    fence = "\n".join(("<!-- commands -->", "", "```sh", *commands, "```"))
    (folder / "README.md").write_text(f"# T\n\n{fence}\n\n```sh\nfalse\n```\n")
    return ["bash", str(folder / ".ci" / "run")]


def test_ci_runs_the_readmes_commands(tmp_path: Path) -> None:
    summary = "===== 7 passed in 0.1s ====="
    clone = make_clone(tmp_path, "echo a && echo b", "pwd", f"echo '{summary}'")

    def answers(browser: str) -> list[str]:
        env = {**os.environ, "CI": "", "CHROMIUM": browser}
        lines = subprocess.check_output(clone, text=True, env=env).splitlines()
        return [line for line in lines if not line.startswith("$")]

    readmes = ["a", "b", str(tmp_path), summary]
    rest = ["nox -s lint", "nox -s smoke", summary]
    assert answers("/no/browser") == [*readmes, *rest]
    assert answers("/bin/sh") == [*readmes, "nox -s site", *rest]


def test_ci_stops_at_a_command_that_fails(tmp_path: Path) -> None:
    clone = make_clone(tmp_path, "echo a", "false", "echo c")
    result = subprocess.run(clone, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "$ false"


def weekly_script(job: str, has: str) -> str:
    weekly = ROOT / ".github" / "workflows" / "weekly.yml"
    steps = yaml.safe_load(weekly.read_text())["jobs"][job]["steps"]
    (script,) = [s["run"] for s in steps if has in s.get("run", "")]
    return str(script)


def test_a_weekly_run_reads_the_list_of_releases() -> None:
    script = weekly_script("current", "releases")
    assert '>> "$GITHUB_OUTPUT"' in script
    command = ["sh", "-ec", script.replace('>> "$GITHUB_OUTPUT"', "")]
    said = subprocess.check_output(command, cwd=ROOT, text=True)
    assert said.startswith("torch=")
    listed = json.loads(said.removeprefix("torch="))
    assert listed == [*releases.current()[1:]]
    assert weekly_script("releases", "--torch ${{ matrix.torch }}")


def test_a_weekly_run_adds_the_newest_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = weekly_script("newest", "pip index")
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'torch (9.8.7+cpu)'\necho 'INSTALLED: 0'\n")
    pip.chmod(0o755)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    known, told = releases.current(), tmp_path / "env"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_ENV": str(told)}
    for _ in range(2):  # the second time it is there already
        command = ["sh", "-ec", script]
        subprocess.run(command, cwd=tmp_path, env=env, check=True)
    assert told.read_text() == "newest=9.8.7\n" * 2
    monkeypatch.setattr(releases, "ROOT", tmp_path)
    assert releases.current() == (*known, "9.8.7")


@pytest.mark.proves("environment.CXX")
@pytest.mark.parametrize("command", ["build", "docs", "tests", "lint"])
def test_a_missing_compiler_ends_in_one_line(command: str) -> None:
    result = run_nox("-s", command, CXX="no-such-compiler")
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert "There is no no-such-compiler, which CXX names: unset CXX" in last
    assert last.endswith((").", "seconds).", "a second)."))
    assert "uv" not in result.stderr


class Session:
    """Stands for nox's in what ends a command."""

    name = "tests"
    posargs: list[str] = []

    def log(self, text: str) -> None:
        pass

    def error(self, text: str) -> None:
        raise SystemExit(text)


def test_a_failing_build_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **env: str) -> None:
        raise CommandFailed("cmake failed")

    monkeypatch.setattr(noxfile, "environment", lambda session: None)
    monkeypatch.setattr(noxfile, "settle", lambda session, tree: None)
    monkeypatch.setattr(noxfile, "run", fail)
    monkeypatch.setattr(noxfile, "pip_build", fail)
    with pytest.raises(SystemExit, match="first error above says where"):
        noxfile.build(Session())


def test_whatever_finds_the_disk_full_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(noxfile, "environment", write)
    monkeypatch.setattr(noxfile.machine, "full", lambda *places: "It is full.")
    with pytest.raises(SystemExit, match="It is full"):
        noxfile.build(Session())


def test_a_build_that_pip_could_not_write_names_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(noxfile.machine, "follow", lambda *a, **env: "no PCH")
    monkeypatch.setattr(noxfile.machine, "full", lambda place: f"{place} full")
    with pytest.raises(SystemExit, match=f"{ROOT} full"):
        noxfile.pip_build(Session(), tmp_path)


@pytest.mark.parametrize(
    ("command", "after", "passed_on"),
    [("tests", ["x.py"], True), ("tests", [], False), ("ops", ["x"], False)],
)
def test_who_names_a_test_may_name_a_launch_mode(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    after: list[str],
    passed_on: bool,
) -> None:
    monkeypatch.setattr(noxfile, "changed", lambda *made_from: None)
    monkeypatch.setattr(noxfile.machine, "spaced", lambda folder: None)
    monkeypatch.setenv("OPENREG_LAUNCH", "async")
    session = Session()
    session.name, session.posargs = command, after
    said: list[str] = []
    monkeypatch.setattr(session, "log", said.append)
    noxfile.check(session)
    assert ("OPENREG_LAUNCH" in os.environ) == passed_on
    assert ("Passed on: OPENREG_LAUNCH=async." in said) == passed_on


@pytest.fixture
def calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[tuple[str, dict[str, str]]]:
    """What a command runs, and with which variables, once all is built."""
    ran: list[tuple[str, dict[str, str]]] = []

    def run(session: Session, *command: str | Path, **env: str) -> None:
        ran.append((" ".join(map(str, command)), env))

    monkeypatch.setattr(noxfile, "run", run)
    monkeypatch.setattr(noxfile, "build_checked", lambda session: None)
    monkeypatch.setattr(noxfile, "PROOF", tmp_path)
    return ran


def test_a_full_run_begins_and_ends_with_its_proof(
    calls: list[tuple[str, dict[str, str]]], tmp_path: Path
) -> None:
    for old in ("proof.json", "coverage.1"):
        (tmp_path / old).write_text("of another run")
    noxfile.tests(Session())
    assert list(tmp_path.iterdir()) == []
    begin, tests, *again, combine, report, end = calls
    assert begin[0] == f"python {noxfile.PROOF_PROGRAM} begin"
    assert tests[0].startswith("coverage run -m pytest ")
    assert f"--junit-xml={tmp_path / 'tests.xml'}" in tests[0]
    assert tests[1] == noxfile.counting()
    assert combine[0].startswith("coverage combine")
    assert report[0] == f"coverage json -qi -o {tmp_path / 'python.json'}"
    modes = [env["OPENREG_LAUNCH"] for _, env in again]
    assert modes == ["async", "blocking"]
    assert [line.startswith("coverage run") for line, _ in again] == [
        True,
        False,
    ]
    assert end[0] == f"python {noxfile.PROOF_PROGRAM} {noxfile.CHECKED_TREE}"


def test_each_warning_stops_the_print_and_accept_writes(
    calls: list[tuple[str, dict[str, str]]],
) -> None:
    noxfile.docs(Session())
    noxfile.accept(Session())
    (sphinx, _), (pytest_, _) = calls
    assert " -nWEq " in sphinx
    assert f" --accept -k .md or as_recorded {ROOT / 'book'} " in pytest_


def test_counts_of_another_build_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts = tmp_path / "a" / "x.gcda", tmp_path / "b" / "x.gcda"
    for path, name in zip(counts, ("CHECKED_TREE", "PROOF"), strict=True):
        path.parent.mkdir()
        path.touch()
        monkeypatch.setattr(noxfile, name, path.parent)
    monkeypatch.setattr(noxfile, "environment", lambda session: None)
    (tmp_path / "a" / "build.ninja").touch()
    monkeypatch.setattr(noxfile, "changed", lambda *made_from: None)
    monkeypatch.setattr(noxfile, "run", lambda *command, **how: None)
    noxfile.build(Session())
    assert not any(path.exists() for path in counts)


@pytest.mark.parametrize("does", ["echo race >&2", "exit 1", "echo race"])
def test_a_sanitizer_that_is_silent_is_named(does: str) -> None:
    sanitize.find_planted(["sh", "-c", "echo race >&2; exit 1"], "race")
    with pytest.raises(SystemExit, match="Not found: race"):
        sanitize.find_planted(["sh", "-c", does], "race")


def test_busy_processes_end_with_what_they_stand_beside() -> None:
    with pytest.raises(ZeroDivisionError), stress.busy(2) as others:
        assert [other.poll() for other in others] == [None, None]
        1 / 0  # noqa: B018
    assert None not in [other.poll() for other in others]


def test_stress_runs_whole_suites_in_every_mode(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here a suite is a program that says its mode, and fails in one."""
    says = "import os, sys; print(mode := os.getenv('OPENREG_LAUNCH', 'auto'))"
    monkeypatch.delenv("OPENREG_LAUNCH", raising=False)
    monkeypatch.setattr(stress, "PYTEST", (sys.executable, "-c", says))
    assert stress.main(["busy", "1"])
    assert capfd.readouterr().out.splitlines()[1:] == [
        *("1: auto", "1: async", "1: blocking"),
        "1 of 1 suites passed.",
    ]
    fails = f"{says}; sys.exit(mode == 'async')"
    monkeypatch.setattr(stress, "PYTEST", (sys.executable, "-c", fails))
    assert not stress.main(["twice", "2"])
    said = capfd.readouterr().out.splitlines()
    assert said.count("2: blocking") == 2
    assert said[-1] == "0 of 4 suites passed."


@pytest.mark.parametrize("failing", [None, 0, 7])
def test_stress_repeats_tests_of_concurrency_until_one_fails(
    monkeypatch: pytest.MonkeyPatch, failing: int | None
) -> None:
    ran: list[tuple[str, ...]] = []

    def run_tests(mode: dict[str, str], *arguments: str) -> bool:
        ran.append(arguments)
        return len(ran) - 1 != failing

    monkeypatch.setattr(stress, "run_tests", run_tests)
    assert stress.main([]) == (failing is None)
    assert len(ran) == (21 if failing is None else failing + 1)
    assert ran[0] == ("-m", "stress")
    assert all(Path(name).exists() for run in ran[1:] for name in run)


def test_what_a_test_has_set_costs_no_later_process_its_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    os.environ["SET_BY_A_TEST"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = SimpleNamespace(name=name)
        monkeypatch.setattr(_fresh, "folder_of_process", lambda: folder)
        python = _fresh.fork_server.__wrapped__(), ["-c", "import torch"]
        assert _python.ask(*python, dict(os.environ)) is None
        _session.restore()
        assert _python.ask(*python, dict(os.environ)) == 0


def test_a_forked_process_finds_what_pythonpath_names(tmp_path: Path) -> None:
    (tmp_path / "of_its_own.py").write_text("print('is found')")
    code = "import torch, of_its_own"
    assert _fresh.prints(code, PYTHONPATH=str(tmp_path)) == "is found\n"
    assert "No module named" in _fresh.run(code).stdout
