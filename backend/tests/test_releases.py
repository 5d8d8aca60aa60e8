"""Which releases of PyTorch there are, and that each has its own place."""

import re
from pathlib import Path

import pytest

import noxfile
import releases
from torch_openreg._build import TORCH_VERSION

pytestmark = pytest.mark.one_mode

FIRST, *OTHERS = releases.current()


def test_the_list_is_in_order_and_has_the_one_that_is_tested() -> None:
    known = [FIRST, *OTHERS]
    assert known == sorted(known, key=lambda x: [*map(int, x.split("."))])
    assert len(known) == len({*known}) > 1
    assert TORCH_VERSION in known
    assert releases.installed() == TORCH_VERSION


def test_no_other_file_pins_a_release() -> None:
    project = (releases.ROOT / "pyproject.toml").read_text()
    assert not re.findall(r"\btorch[=<>~]=", project)
    cmake = (releases.ROOT / "backend" / "CMakeLists.txt").read_text()
    assert not [x for x in (FIRST, *OTHERS) if x in cmake]


@pytest.mark.parametrize(
    ("line", "torch", "rest"),
    [
        (["-s", "tests"], FIRST, ["-s", "tests"]),
        (["--", "--torch", OTHERS[0], "x.py"], OTHERS[0], ["--", "x.py"]),
        (["--", "x.py", f"--torch={OTHERS[0]}"], OTHERS[0], ["--", "x.py"]),
        (["--", "--torch"], "", ["--"]),
    ],
)
def test_a_command_line_names_a_release(
    line: list[str], torch: str, rest: list[str]
) -> None:
    assert releases.asked(line) == torch
    assert releases.others(line) == rest


def test_no_two_releases_share_a_place() -> None:
    places = [releases.places(torch) for torch in releases.current()]
    paths = [path for place in places for path in place[1:]]
    assert len(paths) == len({*paths})
    inside = {path.relative_to(releases.ROOT).parts[0] for path in paths}
    assert inside == {".nox", "build", "book"}
    assert releases.places(FIRST).env == noxfile.SHARED


class Session:
    """Stands for nox's."""

    def __init__(self, name: str, *posargs: str) -> None:
        self.name, self.posargs = name, [*posargs]

    def error(self, text: str) -> None:
        raise SystemExit(text)


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("tests", ["--torch", "1.13.1"], f"1.13.1 is none .*{FIRST}, .*one of"),
        ("build", ["--torch"], r"\(none was named\) is none of the releases"),
        ("accept", ["--torch", OTHERS[0]], f"PyTorch {FIRST} does: leave"),
        ("bench", [f"--torch={OTHERS[0]}", "--record"], "leave --torch"),
    ],
)
def test_a_release_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    arguments: list[str],
    says: str,
) -> None:
    """Before anything is made, in one line that names those that can be."""
    monkeypatch.setattr("sys.argv", ["nox", "-s", command, "--", *arguments])
    monkeypatch.setattr(noxfile, "environment", lambda session: 1 / 0)
    with pytest.raises(SystemExit, match=says):
        getattr(noxfile, command)(Session(command, *arguments))


def test_what_stays_of_the_arguments_is_the_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []
    session = Session("tests", "--torch", OTHERS[0], "x.py", "-k", "y")
    monkeypatch.setattr("sys.argv", ["nox", "--", *session.posargs])
    monkeypatch.setattr(noxfile, "build_checked", lambda session: None)
    monkeypatch.setattr(
        noxfile, "run", lambda session, *command, **env: seen.extend(command)
    )
    noxfile.tests(session)
    assert seen == [*noxfile.PYTEST, "x.py", "-k", "y"]


def test_another_release_runs_every_mode_and_counts_no_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[tuple[str, ...]] = []
    modes: list[str | None] = []

    def run(session: Session, *command: str, **env: str) -> None:
        ran.append(command)
        modes.append(env.get("OPENREG_LAUNCH"))

    monkeypatch.setattr(noxfile, "TORCH", OTHERS[0])
    monkeypatch.setattr(noxfile, "PROOF", tmp_path / "proof")
    monkeypatch.setattr(noxfile, "build_checked", lambda session: None)
    monkeypatch.setattr(noxfile, "run", run)
    noxfile.tests(Session("tests"))
    assert modes == [None, "async", "blocking"]
    assert all(command[:3] == noxfile.PYTEST for command in ran)
    reports = [command[-1].rpartition("/")[2] for command in ran]
    assert reports == ["tests.xml", "async.xml", "blocking.xml"]
