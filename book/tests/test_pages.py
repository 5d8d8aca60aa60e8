"""How pages run: what passes, and that each mistake turns a page red."""

import contextlib
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from _pages import samples
from sybil import Document, Example
from sybil.example import SybilFailure

import _session
import conftest
from torch_openreg import openreg


@pytest.fixture
def namespace() -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {}
    conftest.begin_page(names)
    yield names
    conftest.end_page(names)


def examples(text: str, namespace: dict[str, Any]) -> list[Example]:
    document = Document(text, "page.md")
    document.namespace = namespace
    for region in conftest.collect(document):
        document.add(region)
    return list(document.examples())


def run(text: str, namespace: dict[str, Any]) -> None:
    for example in examples(text, namespace):
        example.evaluate()


def python(body: str, output: str | None = None) -> str:
    text = f"```python\n{body}\n```\n"
    return text if output is None else f"{text}\n```output\n{output}\n```\n"


def console(body: str) -> str:
    return f"```console\n{body}\n```\n"


PYTHON = Path(sys.executable).with_name("python")


GOOD = {
    **samples("pages")["good"],
    "interpreter": console(
        f"$ python -c 'import sys; print(sys.executable)'\n{PYTHON}"
    ),
}
BAD = samples("pages")["bad"]


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_runs(
    text: str, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run(text, namespace)


@pytest.mark.parametrize("sample", BAD)
def test_fails(sample: str, namespace: dict[str, Any]) -> None:
    with pytest.raises(SybilFailure) as failure:
        run(BAD[sample]["text"], namespace)
    assert BAD[sample]["says"] in str(failure.value)


def test_an_example_stands_in_its_line(namespace: dict[str, Any]) -> None:
    page = "# Title\n\n" + python("x = 1", "1") + "\n" + console("$ ls")
    assert [e.line for e in examples(page, namespace)] == [3, 11]


def test_an_assert_shows_values_and_line(namespace: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"assert 1 == 2") as failure:
        run("# Title\n\n" + python("x = 1\nassert x == 2"), namespace)
    assert failure.traceback[-1].lineno + 1 == 5


def test_a_command_waits_for_no_key_and_not_forever(
    namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    real = subprocess.run

    def note(command: list[str], **how: Any) -> Any:
        asked.update(how)
        return real(command, **how)

    monkeypatch.setattr(subprocess, "run", note)
    run(console("$ cat"), namespace)
    assert asked["stdin"] == subprocess.DEVNULL
    assert asked["timeout"] == 1200


def set_up(**item: object) -> None:
    """What pytest does before it runs a test or an example."""
    made: Any = SimpleNamespace(**item)
    hook = conftest.pytest_runtest_setup(made)
    next(hook)
    with contextlib.suppress(StopIteration):
        next(hook)


def test_what_stands_above_an_example_runs_first_and_once(
    namespace: dict[str, Any],
) -> None:
    page = python('x = [*globals().get("x", []), 1]')
    page += python("x.append(2)") + python("print(x)", "[1, 2]")
    first, _, last = examples(page, namespace)
    set_up(example=first)
    first.evaluate()
    for _ in range(2):
        set_up(example=last)
        last.evaluate()


class Cycle:
    """Refers to itself, as an operator does that a page has defined."""

    def __init__(self) -> None:
        self.itself = self


def test_what_a_page_made_goes_with_it() -> None:
    names: dict[str, Any] = {"x": Cycle()}
    left = weakref.ref(names["x"])
    openreg.set_device(1)
    conftest.begin_page(names)
    assert openreg.current_device() == 0
    folder = Path(names[conftest.FOLDER].name)
    assert folder.is_dir()
    conftest.end_page(names)
    assert not folder.exists()
    assert names == {}
    assert left() is None


@pytest.mark.parametrize("begin", [conftest.reset, set_up])
def test_pages_and_tests_start_on_device_0_with_seed_0(
    begin: Callable[[], None],
) -> None:
    numbers = []
    for _ in range(2):
        begin()
        current = openreg.current_stream()
        assert current == openreg.default_stream(0)
        numbers.append((torch.rand(3), torch.rand(3, device="openreg").cpu()))
        openreg.set_stream(openreg.Stream())
        index = torch.full((1, 1), 9, device="openreg")
        with pytest.raises(torch.AcceleratorError):  # which lasts
            index.gather(0, index).cpu()
        openreg.set_device(1)
    assert all(map(torch.equal, *numbers))


def test_a_page_starts_with_nothing_counted() -> None:
    library = torch.library.Library("openreg_pages_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    torch.ops.openreg_pages_test.twice(torch.ones(1, device="openreg"))
    library._destroy()
    assert openreg.fallback.counts()
    conftest.reset()
    assert not openreg.fallback.counts()


def test_a_lock_that_a_killed_compilation_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = [tmp_path / name / "lock" for name in ("left", "in use")]
    for lock in locks:
        lock.parent.mkdir()
        lock.touch()
    hours_ago = locks[0].stat().st_mtime - 7200
    os.utime(locks[0], (hours_ago, hours_ago))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr="", accept=0))
    conftest.pytest_configure(config)
    assert [lock.exists() for lock in locks] == [False, True]


@pytest.mark.parametrize("mode", ["auto", "blocking"])
def test_what_holds_work_back_is_left_out_where_none_is_pending(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENREG_LAUNCH", mode)
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr="not stress"))
    _session.begin(config)
    left_out = config.option.markexpr.endswith(" and not queued")
    assert left_out == (mode == "blocking")
    if left_out:  # of all that were chosen, not of the last alternative
        assert config.option.markexpr == "(not stress) and not queued"


def test_a_users_settings_do_not_reach_the_tests() -> None:
    mode = {"OPENREG_LAUNCH": "async", "TORCH_EXTENSIONS_DIR": "/x"}
    environ = {"OPENREG_DEVICE_COUNT": "1", "LC_ALL": "de_DE.UTF-8", **mode}
    assert _session.settle(environ) == [
        "Not passed on, though set: OPENREG_DEVICE_COUNT.",
        "OPENREG_LAUNCH is async.",
    ]
    assert environ == {"LC_ALL": "C.UTF-8", **mode}
    assert _session.settle({}) == []


def test_settings_are_left_out_before_pytorch_reads_them() -> None:
    read = Path(conftest.__file__).read_text("utf-8")
    assert read.index("import _session") < read.index("import torch")
    code = "import os, _session; print(os.environ.get('OPENREG_DEVICE_COUNT'))"
    worker = "PYTEST_XDIST_WORKER"  # which has what the first process left
    env = {name: os.environ[name] for name in os.environ if name != worker}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = {sys.path}\n{code}"],
        env={**env, "OPENREG_DEVICE_COUNT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "None\n"
    assert "OPENREG_DEVICE_COUNT" in done.stderr
