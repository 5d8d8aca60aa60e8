"""`nox -s new`: a repository that builds, trains, and merges newer versions."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import _rows
import new
import releases
import rooms
from torch_device_kit import doctor
from torch_device_kit.conformance import interfaces, known

pytestmark = pytest.mark.one_mode

PROGRAM = rooms.ROOT / "backend" / "new" / "new.py"
KIT = rooms.ROOT / "backend" / "kit"
BUILD = releases.places(releases.installed()).build / "new"
MOST = 1500  # lines of code
OPTIONS = {
    "prefix": "Acme",
    "author": "Ada",
    "licence": "MIT",
    "book": "https://book.example/",
    "step": new.FIRST,
    "torch": releases.installed(),
}
STEPS = _rows.read("steps")
del STEPS["columns"]
NOTHING = dict.fromkeys(new.OPTIONS)
Git = Callable[..., str]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return new.generate("acme", OPTIONS)


def with_names_of_ours(files: dict[str, str]) -> set[str]:
    return {
        path
        for path, text in files.items()
        if re.search(r"openreg|@[a-z]+@", path + text, re.I)
        or re.search(r"\bor[A-Z]|^ *(//|#) \[", text, re.M)
    }


def test_nothing_of_the_books_device_is_left(files: dict[str, str]) -> None:
    assert with_names_of_ours(files) == {"NOTICE"}
    assert files["NOTICE"].endswith((rooms.ROOT / "LICENSE").read_text())


def test_the_package_is_small(files: dict[str, str], tmp_path: Path) -> None:
    lines = 0
    for path, text in files.items():
        if path.endswith((".cpp", ".h", ".py")):
            file = tmp_path / Path(path).name
            file.write_text(text)
            lines += rooms.count_code(file)
    assert 1300 < lines <= MOST


def test_options_are_where_they_belong(files: dict[str, str]) -> None:
    project = files["pyproject.toml"]
    assert 'authors = [{ name = "Ada" }]\nlicense = "MIT"\n' in project
    assert files["README.md"].startswith("# Acme for PyTorch\n")
    assert "(https://book.example/chapters/stream.html)" in files["README.md"]
    assert "torch_acme/acme.py" in files


def test_each_file_that_a_chapter_names_is_there(
    files: dict[str, str],
) -> None:
    chapters = [*(rooms.ROOT / "book" / "chapters").glob("*.md")]
    lines = [
        line
        for chapter in chapters
        for line in chapter.read_text().splitlines()
        if "[a generated package](" in line
    ]
    named = {x for line in lines for x in re.findall(r"`([\w/]+\.\w+)`", line)}
    assert len(lines) > 10
    assert len(named) > 10
    assert named <= files.keys()


def test_each_declared_gap_is_a_row_and_has_a_step(
    files: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "known.toml"
    file.write_text(files["known.toml"])
    steps = re.findall(r"^(\d)\. ", files["README.md"], re.M)
    rows = interfaces.rows("acme")
    for line in known.read(file).lines:
        if line.kind in interfaces.LEVELS:
            assert any(map(line.covers, rows)), line
        told = line.reason.partition(": ")[2]
        assert told in {f"step {step}." for step in steps} or "doctor" in told


def at_step(step: str) -> dict[str, str]:
    return new.generate("acme", OPTIONS | {"step": step})


def test_the_table_has_the_steps_in_their_order() -> None:
    assert list(STEPS) == list(new.steps())


@pytest.mark.proves("steps.*")
@pytest.mark.parametrize("step", STEPS)
def test_a_step_changes_what_the_one_before_has_left(step: str) -> None:
    row, before, after = STEPS[step], *map(at_step, new.until(step)[-2:])
    assert with_names_of_ours(after) == {"NOTICE"}
    assert row["tests"] in after.keys() - before.keys()
    assert (rooms.BOOK / "chapters" / f"{row['chapter']}.md").is_file()
    if gap := row.get("gap"):
        assert f"step {gap}." in before["known.toml"]
        assert f"step {gap}." not in after["known.toml"]
        done = rf"^{gap}\. .*, which (is|are) there"
        assert re.search(done, after["README.md"], re.M)
    gaps = before["known.toml"].split("[[known]]")[1:]
    left = after["known.toml"].split("[[known]]")[1:]
    assert {gap.strip() for gap in left} <= {gap.strip() for gap in gaps}


def test_each_page_that_the_readme_names_is_there() -> None:
    readme = new.generate("acme", OPTIONS | {"book": ""})["README.md"]
    pages = re.findall(r"\(`book/(.+?)`\)", readme)
    assert len(pages) > 7
    for page in pages:
        assert (rooms.BOOK / page).is_file(), page


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("[no-region]", r"'\[no-region\]' is in 0 lines, not in one"),
        ("a", "'a' is in 2 lines, not in one"),
        (["b", "}"], "no line with '}' follows 'b'"),
    ],
)
def test_a_cut_that_has_lost_its_place_is_named(
    place: new.Place, says: str
) -> None:
    with pytest.raises(new.Refused, match=says):
        new.find(["a {", "  }", "b a"], place)


def test_a_change_of_what_is_not_there_is_named() -> None:
    part = {"from": "LICENSE", "change": [["no text", ""]]}
    with pytest.raises(new.Refused, match="LICENSE: there is no 'no text'"):
        new.cut(part, "", "parts.toml cuts a")


def refused(*arguments: str | Path, **env: str) -> str:
    """What the command says, which must fail."""
    command = [sys.executable, PROGRAM, *arguments]
    ran = subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True
    )
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.count("\n") == 1
    return ran.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Acme", "'Acme' cannot be the name of a device: expected lower-case"),
        ("my-chip", "'my-chip' cannot be the name of a device"),
        ("class", "'class' cannot be the name"),
        ("cuda", "'cuda' means something else to PyTorch"),
        ("openreg", "'openreg' means something else"),
    ],
)
def test_a_bad_name_is_refused(name: str, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert says in refused(name, folder)
    assert not folder.exists()


def test_a_bad_option_is_refused(tmp_path: Path) -> None:
    for option, value in {"author": 'A "B"', "prefix": "A B"}.items():
        said = refused("acme", tmp_path / "new", f"--{option}", value)
        assert f"--{option} " in said
        assert not (tmp_path / "new").exists()


def test_without_git_there_is_one_line(tmp_path: Path) -> None:
    said = refused("acme", tmp_path / "new", PATH=str(tmp_path))
    assert said == "There is no git: install it, and run this again.\n"


def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "has files already" in refused("acme", tmp_path)
    assert "is a file" in refused("acme", tmp_path / "file")
    subprocess.check_call(["git", "init", "--quiet", tmp_path])
    assert "no branch 'generated'" in refused("acme", tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    new.make("acme", tmp_path / "torch_acme", NOTHING | {"author": "Ada"})
    return tmp_path / "torch_acme"


@pytest.fixture
def git(made: Path) -> Git:
    def run(*arguments: str) -> str:
        who = ("-c", "user.name=Reader", "-c", "user.email=reader@localhost")
        command = ["git", "-C", str(made), *who, *arguments]
        return subprocess.check_output(command, text=True).strip()

    return run


def test_a_new_package_is_a_clean_repository(made: Path, git: Git) -> None:
    assert git("status", "--porcelain") == ""
    assert git("branch", "--format", "%(refname:short)") == "generated\nmain"
    assert git("log", "--format=%an: %s", "main") == "Ada: New device"
    assert (made / "csrc" / "driver.cpp").is_file()


def test_a_newer_version_is_merged_with_what_the_reader_changed(
    made: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, view = made / "csrc" / "driver.cpp", made / "csrc" / "view.cpp"
    driver.write_text(driver.read_text().replace("<< 30", "<< 31"))
    git("commit", "--quiet", "--all", "-m", "More memory")
    (made / "README.md").write_text("being written\n")
    older = new.generate

    def newer(name: str, options: dict[str, str]) -> dict[str, str]:
        files = older(name, options)
        assert options["author"] == "Ada"  # which was told at first
        files["csrc/view.cpp"] = "// Newer.\n" + files["csrc/view.cpp"]
        del files["csrc/register.cpp"]
        return files | {"csrc/more.cpp": "// More.\n"}

    assert "all that there is" in new.make("acme", made, NOTHING)
    monkeypatch.setattr(new, "generate", newer)
    assert "merge generated" in new.make("acme", made, NOTHING)
    # The reader's files are as they were.
    assert git("status", "--porcelain") == "M README.md"
    assert not (made / "csrc" / "more.cpp").exists()
    git("checkout", "--quiet", "README.md")
    git("merge", "--quiet", "generated", "-m", "Newer version")
    assert "<< 31" in driver.read_text()
    assert view.read_text().startswith("// Newer.\n")
    assert (made / "csrc" / "more.cpp").exists()
    assert not (made / "csrc" / "register.cpp").exists()
    assert "all that there is" in new.make("acme", made, NOTHING)


def test_a_step_is_merged_with_what_the_reader_changed(
    made: Path, git: Git
) -> None:
    readme = made / "README.md"
    readme.write_text(readme.read_text() + "Ours.\n")
    (made / "csrc" / "driver.cpp").write_text("// A whole driver of ours.\n")
    git("commit", "--quiet", "--all", "-m", "Ours")
    *_, before, last = new.until(list(STEPS)[-1])
    assert "CONFLICT" not in new.make("acme", made, NOTHING | {"step": last})
    subjects = git("log", "--format=%s", "generated").splitlines()
    assert subjects == [*(f"Step: {x}" for x in reversed(STEPS)), "New device"]
    git("merge", "--quiet", "generated", "-m", "Merged")
    assert readme.read_text().endswith("Ours.\n")
    assert (made / STEPS[last]["tests"]).is_file()
    # What was taken stays, whether or not it is asked for again.
    for step in (None, before, last):
        said = new.make("acme", made, NOTHING | {"step": step})
        assert "all that there is" in said


def test_what_git_cannot_merge_is_said_before(made: Path, git: Git) -> None:
    allocator = made / "csrc" / "allocator.cpp"
    allocator.write_text("// Ours.\n")
    git("commit", "--quiet", "--all", "-m", "Ours")
    said = new.make("acme", made, NOTHING | {"step": "allocator"})
    assert "Merge conflict in csrc/allocator.cpp\n" in said
    assert "`git merge --abort`" in said
    assert git("status", "--porcelain") == ""
    assert allocator.read_text() == "// Ours.\n"


def test_an_unknown_step_is_refused(made: Path, git: Git) -> None:
    before = git("rev-parse", "generated")
    with pytest.raises(new.Refused, match="There is no step 'all'; there are"):
        new.make("acme", made, NOTHING | {"step": "all"})
    assert git("rev-parse", "generated") == before


def test_a_step_that_has_lost_its_place_changes_nothing(
    made: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"csrc/view.cpp": {"change": [["no text", ""]]}}
    monkeypatch.setattr(new, "steps", lambda: {"lost": lost})
    says = "The step 'lost' cuts csrc/view.cpp: there is no 'no text' to change"
    with pytest.raises(new.Refused, match=says):
        new.make("acme", made, NOTHING | {"step": "lost"})
    assert git("log", "--format=%s", "generated") == "New device"


def test_a_repository_of_another_device_is_refused(made: Path) -> None:
    with pytest.raises(new.Refused, match="is the package of 'acme', not of"):
        new.make("nova", made, NOTHING)


def test_the_branch_that_is_written_may_not_be_in_use(
    made: Path, git: Git
) -> None:
    git("switch", "--quiet", "generated")
    with pytest.raises(new.Refused, match="`git switch main` first"):
        new.make("acme", made, NOTHING)


@pytest.fixture(scope="module")
def python(files: dict[str, str]) -> Iterator[Path]:
    """An environment with the package built and installed, and no openreg.

    It is kept, so that another run compiles what has changed alone.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:  # another suite may run beside
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield install(files)


def install(files: dict[str, str]) -> Path:
    """Builds the package in BUILD; the interpreter that has it."""
    source, venv = BUILD / "torch_acme", BUILD / "venv"
    for folder in ("csrc", "tests", "torch_acme"):
        for old in (source / folder).rglob("*.*"):
            if old.relative_to(source).as_posix() not in files:
                old.unlink()
    for path, text in files.items():
        file = source / path
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    subprocess.check_call(
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)]
    )
    bases = {"base": str(venv), "platbase": str(venv)}
    site = Path(sysconfig.get_path("purelib", vars=bases))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "openreg" not in entry.name and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    python = venv / "bin" / "python"
    pip = ("pip", "install", "--no-build-isolation", "--no-deps", ".")
    strict = "--config-settings=cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON"
    debug = "--config-settings=cmake.build-type=Debug"
    ran = call(python, *pip, debug, strict, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert ran.returncode == 0, ran.stdout
    return python


def call(
    python: Path, *module: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs a module in the folder of the package's source."""
    return subprocess.run(
        [str(python), "-P", "-m", *module],
        cwd=BUILD / "torch_acme",
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# Each run, the page start-yours.md builds it, and runs all but two of these.
@pytest.mark.stress
def test_it_passes_its_own_tests(python: Path) -> None:
    ran = call(python, "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"^\d+ passed in", ran.stdout, re.M), ran.stdout


@pytest.mark.stress
def test_the_doctor_finds_gaps_alone(python: Path, tmp_path: Path) -> None:
    """Nothing is wrong, and nothing is missing that a program needs."""
    ran = call(
        python,
        *("torch_device_kit", "doctor", "--device=acme", "--quick"),
        *("--import=torch_acme", f"--json={tmp_path / 'json'}"),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        PYTHONPATH=str(KIT),
    )
    assert ran.returncode == 1, ran.stdout
    rows = json.loads((tmp_path / "json").read_text())["rows"]
    missing = [row for row in rows if row["state"] == doctor.MISSING]
    assert {row["state"] for row in rows} == {doctor.HAS, doctor.MISSING}
    assert {row["id"] for row in missing if row["needed"]} == set(), ran.stdout
    assert 2 * len(missing) < len(rows)


# What the file speaks of: operators in one dtype, and the rest whole.
OPERATORS = ("forward", "strided", "in-place", "out", "gradient")
KINDS = ",".join((*OPERATORS, "module*", "optimizer*", *interfaces.LEVELS))
NO_GAP = """
[[known]]
names = ["nn.Linear"]
kinds = "module"
dtypes = "all"
says = "value"
reason = "None."
"""


def conform(
    python: Path, gaps: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """The kit's report on what the package does, where `gaps` declares."""
    file = folder / "known.toml"
    file.write_text(gaps)
    return call(
        python,
        *("torch_device_kit", "conform", "--device=acme", "--samples=1"),
        *("--import=torch_acme", f"--known={file}", f"--kind={KINDS}"),
        *("--dtype=float32,", f"--answers={folder / 'answers'}"),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        PYTHONPATH=str(KIT),
    )


@pytest.mark.stress
def test_the_kit_finds_exactly_the_gaps_that_it_declares(
    python: Path, files: dict[str, str], tmp_path: Path
) -> None:
    for more, status in {"": 0, NO_GAP: 1}.items():
        ran = conform(python, files["known.toml"] + more, tmp_path)
        assert ran.returncode == status, ran.stdout
        assert ran.stdout.count("no longer needed") == status
        complete = ran.stdout.splitlines()[-1 - status].split()
        assert complete[0] == "complete"
        assert int(complete[3]) > 100  # are declared


# These come last, since each builds on what the one before has built.
@pytest.mark.stress
@pytest.mark.proves("steps.*")
@pytest.mark.parametrize("step", STEPS)
def test_a_step_passes_its_tests_and_closes_its_gaps(
    python: Path, step: str, tmp_path: Path
) -> None:
    files = at_step(step)
    python = install(files)
    ran = call(python, "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout
    ran = conform(python, files["known.toml"], tmp_path)
    assert ran.returncode == 0, ran.stdout
