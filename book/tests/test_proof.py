"""What a full run has to show, and each way in which it can fall short."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pages import samples, text_of

import claims
import footer
import proof
import regions
from tables import checked

FILE = "backend/csrc/aten/core/copy.cpp"
REGION = regions.Region("copy-x", FILE, 5, "A.", ("f();", "", "g();"))
SHOWN = [("book/chapters/copy.md", REGION)]
COUNTS = {FILE: {5: 12, 7: 1, 8: 0}}


def wrong(counts: proof.Counts, excused: proof.Excuses | None = None) -> str:
    return "\n".join(proof.unproven(SHOWN, counts, excused or {}))


def test_lines_that_ran_are_proven() -> None:
    assert wrong(COUNTS) == ""
    assert proof.proven(REGION, COUNTS) == 2


def test_a_dead_line_is_named_with_file_and_page() -> None:
    assert wrong({FILE: {5: 12, 7: 0}}) == (
        f"{FILE}:5: [copy-x] of book/chapters/copy.md: "
        f"no test runs line 7 (g();)"
    )


def test_a_file_that_nothing_counted_is_named() -> None:
    assert "no line of this file was counted" in wrong({})


def test_an_excuse_is_for_one_line_that_is_there() -> None:
    excuse = {("copy-x", "g();"): "It ends the process."}
    assert wrong({FILE: {5: 12, 7: 0}}, excuse) == ""
    assert "no test runs line 5 (f();)" in wrong({FILE: {5: 0, 7: 0}}, excuse)


def test_every_excuse_names_a_line_that_is_shown() -> None:
    found, _ = regions.find_regions(regions.read_sources())
    lines = {
        (region.name, line.strip()) for region in found for line in region.lines
    }
    assert set(proof.EXCUSED) <= lines


def report(line: int, count: int, folder: str = "/") -> dict[str, Any]:
    lines = [{"line_number": line, "count": count}]
    files = [{"file": str(regions.ROOT / FILE), "lines": lines}]
    return {"current_working_directory": folder, "files": files}


def test_counts_of_all_objects_are_added() -> None:
    reports = [report(5, 0), report(5, 3), report(6, 0)]
    assert proof.gcov_counts(reports) == {FILE: {5: 3, 6: 0}}


def test_a_copy_in_a_pages_folder_counts_for_its_example() -> None:
    place = proof.place
    assert place(Path("/tmp/page-x/axpy.cpp")) == "backend/examples/axpy.cpp"
    assert place(Path("/usr/include/c++/12/vector")) is None
    assert place(regions.ROOT / "noxfile.py") == "noxfile.py"


def test_a_pages_program_counts_its_lines(tmp_path: Path) -> None:
    """The compiler, here of several words, the program, and gcov agree."""
    page, counts = tmp_path / "page-1.d", tmp_path / "counts"
    page.mkdir()
    source = "int main(int n, char**) {\n  if (n > 1)\n  n = GIVEN;\n}\n"
    (page / "count.cpp").write_text(source)
    compiler = Path(proof.__file__).parent / "counting"
    env = os.environ | {
        "PATH": f"{compiler}:{os.environ['PATH']}",
        "REAL_CXX": "env c++ -DGIVEN=7",
        "COUNTS": str(counts),
    }
    for command in ("c++ -c count.cpp", "c++ count.o -o count", "./count"):
        subprocess.run(command.split(), cwd=page, env=env, check=True)
    found = proof.gcov_counts(proof.run_gcov(counts))
    assert found["backend/examples/count.cpp"] == {1: 1, 2: 1, 3: 0, 4: 1}
    assert [path.name for path in page.glob("*.gc*")] == []


def test_gcov_is_that_of_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(command: list[str], **how: object) -> SimpleNamespace:
        ran.append(command[0])
        return SimpleNamespace(stdout="")

    monkeypatch.setattr(proof.subprocess, "run", run)
    for given in ("c++", "ccache g++-13 -g0", "/opt/bin/x86-g++"):
        monkeypatch.setenv("CXX", given)
        assert list(proof.run_gcov(tmp_path)) == []
    assert ran == ["gcov", "gcov-13", "/opt/bin/x86-gcov"]


def test_a_count_that_fails_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(subprocess.CalledProcessError):
        list(proof.run_gcov(tmp_path))


def test_python_is_counted_by_coverage() -> None:
    found = {"executed_lines": [1, 2], "missing_lines": [4]}
    assert proof.coverage_counts({"files": {"noxfile.py": found}}) == {
        "noxfile.py": {1: 1, 2: 1, 4: 0}
    }


SUITE = xml.fromstring(text_of("suite.xml"))


def test_tests_that_passed_are_read_from_the_report() -> None:
    assert proof.passed(SUITE) == {
        "book/start.md": ["line:4,column:1"],
        "backend/tests/test_x.py": ["TestA::test_y", "test_y"],
    }


def test_an_example_that_did_not_run_is_missed() -> None:
    pages = {"book/start.md": "```python\n1\n```\n\n```python\n2\n```\n"}
    assert list(proof.unrun(pages, proof.passed(SUITE))) == [
        "book/start.md: 1 of 2 examples ran"
    ]


def test_a_claim_counts_the_tests_that_ran() -> None:
    ran, left = (
        claims.Test("backend/tests/test_x.py", name, 1)
        for name in ("TestA::test_y", "test_z")
    )
    assert proof.passing({"a-b": [ran, left]}, proof.passed(SUITE)) == {
        "a-b": [str(ran)]
    }


@pytest.mark.parametrize(
    "name",
    [
        *("book/a.md", "backend/x/y.cpp", "conftest.py"),
        *("README.md", "pyproject.toml"),
    ],
)
def test_the_hash_knows_an_edit(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    seen = set()
    for text in ("a", "b", "a"):
        (tmp_path / name).write_text(text)
        seen.add(proof.digest(tmp_path))
    assert len(seen) == 2
    for folder in ("book/_build", "backend/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.md").write_text("made")
    (tmp_path / "backend" / "x.d").mkdir()
    assert proof.digest(tmp_path) in seen
    path = tmp_path / name
    path.rename(path.with_stem("z"))
    assert proof.digest(tmp_path) not in seen


def test_a_record_names_its_commit_and_edits(tmp_path: Path) -> None:
    def git(*command: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True)

    git("init", "-q")
    assert proof.commit(tmp_path) == "no commit"
    (tmp_path / "a").write_text("a")
    git("add", "a")
    git("commit", "-qm", "a")
    assert re.fullmatch("[0-9a-f]{7,}", proof.commit(tmp_path))
    (tmp_path / "a").write_text("b")
    assert proof.commit(tmp_path).endswith(", edited")


def test_a_record_of_another_tree_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    assert proof.read_record(path) is None
    path.write_text('{"sources": "of yesterday"}')
    assert proof.read_record(path) is None
    path.write_text(f'{{"sources": "{proof.digest()}"}}')
    assert proof.read_record(path) is not None


RECORD = samples("record")


def test_the_foot_of_a_page_says_what_ran() -> None:
    other = regions.Region("copy-y", FILE, 9, "B.", ("int x;",))
    shown, made = [REGION, other], ["copy-overlap"]
    page = "book/chapters/copy.md"
    assert footer.summary(RECORD, page, shown, made) == (
        "Checked: 2 listings of 1 file, whose 2 lines of code all ran; 1 of "
        "them without a line that can run; 3 examples run and compared; "
        "1 claim with 2 tests; torch 2.13.0, abc1234, 2026-01-02."
    )
    assert footer.summary(None, page, shown, made) == ""


def test_the_table_of_pages_has_a_row_for_each() -> None:
    pages = regions.read_pages()
    record = RECORD | {
        "regions": dict.fromkeys(regions.pages_of(pages), 3),
        "examples": {page: 1 for page in pages},
    }
    text = checked.pages_of_record(record)
    assert text.startswith("On 2026-01-02, with torch 2.13.0 at abc1234, 4,321")
    assert all(f"](/{page.removeprefix('book/')})" in text for page in pages)
    assert "not been tested in full" in checked.pages_of_record(None)


def test_a_run_ends_with_all_that_it_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing was counted, no page ran, and a file was edited meanwhile."""
    monkeypatch.setattr(proof, "FOLDER", tmp_path)
    monkeypatch.setattr(proof, "RECORD", tmp_path / "proof.json")
    assert proof.begin() == 0
    (tmp_path / "sources").write_text("another tree")
    (tmp_path / "python.json").write_text('{"files": {}}')
    # As where no network of one's own can be made, which CI can.
    (tmp_path / "tests.xml").write_text(text_of("no_hosts.xml"))
    monkeypatch.setattr(proof, "run_gcov", lambda *folders: [])
    monkeypatch.setenv("CI", "true")
    assert proof.end("nowhere") == 1
    told, said = capsys.readouterr()
    assert "no test of 'distributed-partition' ran" in said
    monkeypatch.delenv("CI")
    assert proof.end("nowhere") == 1
    told, said = capsys.readouterr()
    assert "not tried here: 'distributed-partition'" in told
    assert "no test of 'distributed-partition' ran" not in said
    assert "backend/device/memory.cpp" in said
    assert "book/start.md: 0 of" in said
    assert "no test of 'stream-order' ran" in said
    assert "edited during the run" in said
    assert not (tmp_path / "proof.json").exists()


def test_a_run_that_lacks_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "build" / "proof"
    monkeypatch.setattr(proof, "FOLDER", folder)
    monkeypatch.setattr(proof, "RECORD", folder / "proof.json")
    monkeypatch.setattr(proof, "unproven", lambda *args: [])
    monkeypatch.setattr(proof, "unrun", lambda *args: [])
    found = {r.file: r for r in regions.find_regions(regions.read_sources())[0]}
    ours, python = found[FILE], found["backend/torch_openreg/__init__.py"]
    asked: list[Path] = []

    def run_gcov(*folders: Path) -> list[dict[str, Any]]:
        asked.extend(folders)
        return [report(ours.first, 1), report(ours.last, 0)]

    monkeypatch.setattr(proof, "run_gcov", run_gcov)
    monkeypatch.setattr(proof, "passing", lambda *args: {"copy-x": ["a::b"]})
    proof.begin()
    counted = {"executed_lines": [python.first], "missing_lines": []}
    (folder / "python.json").write_text(
        json.dumps({"files": {python.file: counted}})
    )
    (folder / "tests.xml").write_text("<testsuites />")
    assert proof.end("nowhere") == 0
    assert asked == [Path("nowhere"), folder / "examples"]
    record = proof.read_record(folder / "proof.json")
    assert record is not None
    assert record["claims"] == {"copy-x": ["a::b"]}
    assert record["regions"][ours.name] == 1
    assert record["regions"][python.name] == 1
    assert checked.pages_of_record(record).startswith("On 20")


def test_a_worker_that_exits_slowly_is_waited_for(tmp_path: Path) -> None:
    """Where pytest-xdist, by itself, would not wait at all."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(text_of("slow_exit.py"))
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n1"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert (tmp_path / "left").exists()
