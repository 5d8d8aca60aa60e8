"""How pages run: what passes, and that each mistake turns a page red."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sybil import Document
from sybil.example import SybilFailure

import _session
import conftest


@pytest.fixture
def namespace() -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {}
    conftest.begin_page(names)
    yield names
    conftest.end_page(names)


def run(text: str, namespace: dict[str, Any]) -> None:
    document = Document(text, "page.md")
    document.namespace = namespace
    for region in conftest.collect(document):
        document.add(region)
    for example in document.examples():
        example.evaluate()


def python(body: str, output: str | None = None) -> str:
    text = f"```python\n{body}\n```\n"
    return text if output is None else f"{text}\n```output\n{output}\n```\n"


def console(body: str) -> str:
    return f"```console\n{body}\n```\n"


GOOD = {
    "program": python("print(40 + 2)", "42"),
    "silent program": python("x = 1"),
    "names carry on": python("x = 6") + python("print(x * 7)", "42"),
    "varies": python("print(object())", "<object object at 0x...>"),
    "session": python(">>> 40 + 2\n42"),
    "error": python(
        ">>> 1 / 0\nTraceback (most recent call last):\n...\n"
        "ZeroDivisionError: division by zero"
    ),
    "command": console("$ echo one; echo two >&2\none\ntwo"),
    "two commands": console("$ printf a\na\n$ echo b\nb"),
    "here document": console("$ cat > f <<END\n> a\n> END\n$ cat f\na"),
    "one folder a page": console("$ echo a > f") + console("$ cat f\na"),
    "expected failure": console('$ false || echo "exit $?"\nexit 1'),
    "root": console("$ ls $REPO/noxfile.py\n/...noxfile.py"),
    "interpreter": console("$ python -c 'import torch'"),
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_runs(text: str, namespace: dict[str, Any]) -> None:
    run(text, namespace)


BAD = {
    "wrong output": (python("print(1)", "2"), "The printed text differs"),
    "prints what is not shown": (
        python("print(1)"),
        "The printed text differs",
    ),
    "shows what is not printed": (python("1", "1"), "The printed text differs"),
    "wrong answer": (python(">>> 1\n2"), "line 2"),
    "error of another kind": (
        python(
            ">>> {}[1]\nTraceback (most recent call last):\n...\nValueError"
        ),
        "KeyError: 1",
    ),
    "command says else": (console("$ echo a\nb"), "$ echo a"),
    "command says more": (console("$ echo a; echo b\na"), "$ echo a; echo b"),
    "command fails": (console("$ exit 3"), "status 3"),
    "pipe fails": (console("$ false | cat"), "status 1"),
    "unset variable": (console("$ echo $NOPE\n..."), "status 1"),
    "stops half way": (console("$ false\n$ echo b\nb"), "status 1"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_fails(text: str, says: str, namespace: dict[str, Any]) -> None:
    with pytest.raises(SybilFailure) as failure:
        run(text, namespace)
    assert says in str(failure.value)


def test_an_assert_shows_values_and_line(namespace: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"assert 1 == 2") as failure:
        run("# Title\n\n" + python("x = 1\nassert x == 2"), namespace)
    assert failure.traceback[-1].lineno + 1 == 5


def test_a_page_starts_on_device_0_with_seed_0() -> None:
    numbers = []
    for _ in range(2):
        conftest.reset()
        assert torch.openreg.current_device() == 0
        numbers.append((torch.rand(3), torch.rand(3, device="openreg").cpu()))
        torch.openreg.set_device(1)
    assert all(map(torch.equal, *numbers))


def test_a_page_starts_with_nothing_counted() -> None:
    library = torch.library.Library("openreg_pages_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    torch.ops.openreg_pages_test.twice(torch.ones(1, device="openreg"))
    library._destroy()
    assert torch.openreg.fallback.counts()
    conftest.reset()
    assert not torch.openreg.fallback.counts()


def test_a_lock_that_a_killed_compilation_left_is_removed(
    tmp_path: Path,
) -> None:
    locks = [tmp_path / name / "lock" for name in ("left", "in use")]
    for lock in locks:
        lock.parent.mkdir()
        lock.touch()
    hours_ago = locks[0].stat().st_mtime - 7200
    os.utime(locks[0], (hours_ago, hours_ago))
    _session.unlock(tmp_path)
    assert [lock.exists() for lock in locks] == [False, True]


@pytest.mark.parametrize("mode", ["auto", "blocking"])
def test_what_holds_work_back_is_left_out_where_none_is_pending(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENREG_LAUNCH", mode)
    config = SimpleNamespace(option=SimpleNamespace(markexpr="not stress"))
    _session.begin(config)
    left_out = config.option.markexpr.endswith(" and not queued")
    assert left_out == (mode == "blocking")
