"""The doctor: what it says of three devices, and of planted faults."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scikit_build_core.build import build_wheel

from _examples import EXAMPLES
from _fresh import run
from _python import AUTOLOAD
from planted import FAULTS, TOGETHER
from torch_device_kit import doctor, operators, report
from torch_device_kit.answers import Answer
from torch_device_kit.asking import Reply
from torch_device_kit.suite import Row, suite
from torch_openreg.openreg import fallback

pytestmark = pytest.mark.one_mode

TESTS = Path(__file__).parent
KIT = TESTS.parent / "kit"
BOOK = TESTS.parents[1] / "book"
NO_BACKEND: dict[str, Any] = {AUTOLOAD: "0"}


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process that has imported PyTorch and no backend."""
    code = f"""
        import sys
        sys.path[:0] = {[str(KIT), str(EXAMPLES), str(EXAMPLES / "smallest")]}
        from torch_device_kit.__main__ import main
        sys.exit(main(["doctor", *sys.argv[1:]]))
    """
    return run(code, *arguments, **NO_BACKEND)


def states(file: Path) -> dict[str, str]:
    rows = json.loads(file.read_text())["rows"]
    return {row["id"]: row["state"] for row in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    process = call(
        *("--device=openreg", "--import=torch_openreg", "--quick"),
        *(f"--{kind}={folder / kind}" for kind in ("json", "html")),
    )
    assert process.returncode == 0, process.stdout
    (folder / "text").write_text(process.stdout)
    return folder


def test_openreg_has_everything(folder: Path) -> None:
    found = states(folder / "json")
    assert set(found.values()) == {doctor.HAS}
    assert set(found) == {r.id for r in suite("openreg") if not r.slow}
    told = (folder / "text").read_text()
    assert f"{len(found)} rows on 2 device(s)" in told


def test_the_page_needs_no_other_file(folder: Path) -> None:
    page = (folder / "html").read_text()
    assert page.count("<tr") == len(states(folder / "json"))
    assert not re.search(r"src=|url\(|<link|<script|https?:", page)


@pytest.mark.stress
@pytest.mark.parametrize(
    ("device", "package"),
    [("openreg", "torch_openreg"), ("tiny", "smallest")],
)
def test_all_rows(device: str, package: str, tmp_path: Path) -> None:
    told = tmp_path / "json"
    process = call(
        f"--device={device}", f"--import={package}", f"--json={told}"
    )
    found = states(told)
    slow = {row.id for row in suite(device) if row.slow}
    assert found.keys() == {row.id for row in suite(device)}
    if device == "openreg":
        assert set(found.values()) == {doctor.HAS}, process.stdout
    else:
        assert {found[row] for row in slow} == {doctor.HAS, doctor.MISSING}


def test_a_device_in_python_alone(tmp_path: Path) -> None:
    told = tmp_path / "json"
    process = call(
        *("--device=toy", "--import=python_backend", "--quick"),
        *("--only=checklist.*,guard.*,frontend.device", f"--json={told}"),
    )
    assert process.returncode == 1
    found = states(told)
    wrong = {row for row, state in found.items() if state == doctor.WRONG}
    # Where another storage's tensor, or a negated view, finds the values.
    assert wrong == {
        "checklist.negative",
        "checklist.set_.source_Storage_storage_offset",
    }
    for row in ("checklist.getNewGenerator", "guard.getDefaultStream"):
        assert found[row] == doctor.MISSING
    for row in ("checklist.view", "checklist.fallback", "guard.setDevice"):
        assert found[row] == doctor.HAS


def with_faults(groups: list[str]) -> dict[str, dict[str, str]]:
    """Of each group of faults, what the rows say that are asked of them."""
    code = f"""
        import json, os, sys
        sys.path[:0] = {[str(KIT), str(TESTS)]}
        from torch_device_kit import doctor
        found = {{}}
        for faults, asked in json.loads(sys.argv[1]).items():
            os.environ["FAULT"] = faults
            patience = 5 if faults == "hangs" else 60
            report = doctor.examine("openreg", "planted", asked, True, patience)
            found[faults] = report.states()
        print(json.dumps(found))
    """
    asked = {
        group: ",".join({FAULTS[name].asked for name in group.split()})
        for group in groups
    }
    process = run(code, json.dumps(asked), **NO_BACKEND)
    assert process.returncode == 0, process.stdout
    told: dict[str, dict[str, str]] = json.loads(
        process.stdout.splitlines()[-1]
    )
    return told


def check(states: dict[str, str], group: str) -> None:
    expected: dict[str, str] = {}
    for name in group.split():
        expected |= FAULTS[name].found
    assert len(states) > len(expected)
    bad = {row: s for row, s in states.items() if s != doctor.HAS}
    assert bad == expected


@pytest.fixture(scope="module")
def together() -> dict[str, dict[str, str]]:
    return with_faults(TOGETHER)


@pytest.mark.proves("doctor-one-row")
@pytest.mark.parametrize("group", TOGETHER)
def test_planted_faults_are_named_by_the_rows_meant_for_them(
    together: dict[str, dict[str, str]], group: str
) -> None:
    check(together[group], group)


def test_each_fault_is_planted() -> None:
    assert sorted(" ".join(TOGETHER).split()) == sorted(FAULTS)


@pytest.mark.stress
def test_each_planted_fault_alone() -> None:
    for fault, states in with_faults(list(FAULTS)).items():
        check(states, fault)


def row(**values: Any) -> Row:
    """A row of which only what is given matters."""
    given: dict[str, Any] = dict.fromkeys(("id", "what", "use", "link"), "")
    given |= {"right": "1", "missing": (), "needed": False}
    return Row(**(given | values))


def test_without_an_allocator_nothing_else_is_tried() -> None:
    base = row(id=doctor.BASE, missing=("ends with SIGSEGV",))
    other = row(id="guard.block")

    def asks(_: Any, rows: list[Row]) -> Any:
        return ((row, Reply(Answer(""), "ends with SIGSEGV")) for row in rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor.asking, "ask", asks)
        verdicts = doctor.ask(None, [base, other])  # type: ignore[arg-type]
    assert [v.state for v in verdicts] == [doctor.MISSING, doctor.NOT_TRIED]


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (Reply(Answer("1")), doctor.HAS),
        (Reply(Answer("2")), doctor.WRONG),
        (Reply(Answer("0")), doctor.MISSING),
        (Reply(Answer("1", ("UserWarning: none",))), doctor.MISSING),
        (Reply(Answer("1", ("UserWarning: other",))), doctor.HAS),
        (Reply(Answer("1", (), True)), doctor.WRONG),
        (Reply(Answer("RuntimeError: 1", (), True)), doctor.WRONG),
        (Reply(Answer("NotImplementedError: f", (), True)), doctor.MISSING),
        (Reply(Answer(""), "ends with SIGABRT"), doctor.WRONG),
        (
            Reply(
                Answer(""),
                "ends with SIGABRT",
                "what(): Backend doesn't support events.",
            ),
            doctor.MISSING,
        ),
        (Reply(Answer(""), "hangs"), doctor.WRONG),
    ],
)
def test_what_a_reply_means(reply: Reply, state: str) -> None:
    asked = row(missing=("0", "UserWarning: none"))
    assert doctor.judge(asked, reply).state == state


def test_what_another_row_lacks_is_said_once() -> None:
    missing = ("RuntimeError: No events.",)
    cause, other = row(id="a.cause", missing=missing), row(id="a.other")
    said = missing[0]
    verdicts = doctor.explain(
        [
            doctor.Verdict(cause, doctor.MISSING, said),
            doctor.Verdict(other, doctor.WRONG, said),
        ],
        [cause, other],
    )
    assert [v.because for v in verdicts] == ["", "a.cause"]
    assert [v.state for v in verdicts] == [doctor.MISSING] * 2


def test_with_one_device_no_row_names_a_second() -> None:
    for asked in suite("npu", 1):
        assert not re.search(r"npu(?::|', |\()1", asked.use), asked.id
        assert "index=1" not in asked.right, asked.id


def test_every_row_leads_to_a_page_that_has_its_place() -> None:
    shown = {}
    listed = re.compile(r':start-after: "\[([\w-]+)\]"')
    for page in BOOK.glob("*/*.md"):
        for name in listed.findall(page.read_text()):
            shown[f"{page.parent.name}/{page.stem}.html#{name}"] = page
    for asked in suite("npu"):
        file, _, place = asked.link.partition("#")
        assert (BOOK / file).with_suffix(".md").is_file(), asked.id
        assert not place or asked.link in shown, asked.id


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--device=npu", "--import=torch_openreg"],
            "calls its device 'openreg'",
        ),
        (["--device=npu", "--import=no_such"], "No module named 'no_such'"),
        (
            ["--device=openreg", "--import=torch_openreg", "--only=gard.*"],
            "No row has an id like 'gard.*'",
        ),
    ],
)
def test_a_device_that_is_not_there(arguments: list[str], told: str) -> None:
    process = call(*arguments)
    assert process.returncode == 2
    assert told in process.stdout


def test_a_process_with_a_backend_is_refused() -> None:
    with pytest.raises(doctor.CannotBegin, match="has loaded a backend"):
        doctor.examine("openreg", "torch_openreg")


def test_the_wheel_has_the_books_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(KIT)
    wheel = zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path)))
    assert wheel.filename is not None
    assert wheel.filename.endswith("-py3-none-any.whl")
    folder = Path(wheel.extract("torch_device_kit/suite.py", tmp_path)).parent
    for name in wheel.namelist():
        wheel.extract(name, tmp_path)
        if name.endswith(".toml"):
            text = (BOOK / "rows" / Path(name).name).read_text()
            assert (tmp_path / name).read_text() == text
    code = "from torch_device_kit.suite import suite; print(suite('npu'))"
    process = run(f"import sys; sys.path[0] = {str(tmp_path)!r}; {code}")
    assert process.stdout == f"{suite('npu')}\n"
    assert folder / "rows" == folder.parent / "torch_device_kit" / "rows"


def test_a_report_is_short() -> None:
    long = "x" * 1000
    assert len(report.short(long)) == 300


@pytest.fixture
def host_only() -> Iterator[Any]:
    """An operator that only the CPU has."""
    with torch.library._scoped_library("kit", "DEF") as library:
        library.define("host_only(Tensor x) -> Tensor")
        library.impl("host_only", lambda x: x + 1, "CPU")
        yield torch.ops.kit.host_only


def test_a_trace_has_what_ran_in_which_thread_it_did(host_only: Any) -> None:
    x = torch.ones(2, 2, device="openreg:1", requires_grad=True)
    with operators.trace() as calls:
        (x @ x).relu().sum().backward()
        host_only(x.detach())
        host_only(torch.ones(1))
    assert {call.device for call in calls} == {"openreg:1"}
    kernels = {call.operator: call.kernel for call in calls}
    assert kernels["aten::mm"] == kernels["aten::threshold_backward"]
    assert kernels["aten::mm"] == "kernel"
    assert kernels["aten::matmul"] == "math kernel"
    depths = [(c.operator, c.depth) for c in calls[:2]]
    assert depths == [("aten::matmul", 0), ("aten::mm", 1)]
    assert operators.fallbacks(calls) == fallback.counts()
    assert fallback.counts() == {"kit::host_only": 1}


def test_a_fallback_can_be_forbidden(host_only: Any) -> None:
    x = torch.ones(2, device="openreg")
    with operators.forbid_fallback() as calls:
        (x + 1).sum()
    assert calls[0].operator == "aten::add.Tensor"
    told = r"openreg has no kernel for kit::host_only \(2x\)"
    with (
        pytest.raises(NotImplementedError, match=told),
        operators.forbid_fallback(),
    ):
        host_only(host_only(x))


def test_a_table_has_every_key(host_only: Any) -> None:
    assert operators.table("aten::linear")["PrivateUse1"] == "math kernel"
    assert operators.table("aten::mm")["AutogradPrivateUse1"] == (
        "autograd kernel"
    )
    assert operators.table("kit::host_only")["PrivateUse1"] == (
        operators.FALLBACK
    )
    with pytest.raises(LookupError, match=r"no operator 'aten::mmm'"):
        operators.table("aten::mmm")
