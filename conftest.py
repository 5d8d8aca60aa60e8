"""How pytest runs the book: every page is a test file, one namespace a page.

A `python` fence is executed; what it prints must equal the `output` fence
right below it, and a session with `>>>` carries its own output. A `console`
fence runs in bash, in a folder that the page's console fences share.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import gc
import io
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import _session  # forgets the user's settings before PyTorch reads them

# isort: split
import pytest
import torch
from _pytest.assertion.rewrite import rewrite_asserts
from sybil import Document, Example, Region, Sybil

import _device
import _fresh
import _python
import _releases
import accept
import regions
import releases
from torch_openreg import openreg
from torch_openreg.openreg import fallback
from torch_openreg.openreg.testing import Gate

DONE = "(command done)\n"
# Keys in a page's namespace that no example can name.
FOLDER, RAN = "(folder)", "(ran)"
# What `--accept` would change in the pages.
EDITS: list[accept.Edit] = []


class Checker(doctest.OutputChecker):
    """Takes also what the installed PyTorch prints in the place of another's.

    Pages are written for the first release of releases.py, whose number
    stands in some of their outputs.
    """

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        first, here = releases.current()[0], releases.installed()
        return any(
            super(Checker, self).check_output(text, got, optionflags)
            for text in (want, want.replace(first, here))
        )


def differs(expected: str, got: str, what: str) -> str | None:
    if Checker().check_output(expected, got, accept.FLAGS):
        return None
    return f"{what}\nExpected:\n{expected}Got:\n{got}"


def run_python(example: Example) -> str | None:
    """Runs a fence without prompts, on the page's own line numbers."""
    __tracebackhide__ = True
    fence, after = example.parsed
    source = "\n" * fence.line + fence.body
    tree = ast.parse(source, example.path)
    rewrite_asserts(tree, source.encode(), example.path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = compile(tree, example.path, "exec", dont_inherit=True)
        exec(code, example.namespace)
    got, expected = printed.getvalue(), after.body if after else ""
    if wrong := differs(expected, got, "The printed text differs."):
        EDITS.append(accept.output(fence, after, got))
    return wrong


class Session(doctest.DocTestRunner):
    """Notes what each prompt should have answered."""

    def __init__(self) -> None:
        super().__init__(Checker(), verbose=False, optionflags=accept.FLAGS)
        self.answers: list[tuple[int, str, str]] = []

    def note(self, prompt: doctest.Example, got: str) -> None:
        line = prompt.lineno + prompt.source.count("\n")
        self.answers.append((line, prompt.want, got))

    def report_failure(
        self,
        out: Any,
        test: doctest.DocTest,
        example: doctest.Example,
        got: str,
    ) -> None:
        self.note(example, got)
        super().report_failure(out, test, example, got)

    def report_unexpected_exception(
        self,
        out: Any,
        test: doctest.DocTest,
        example: doctest.Example,
        exc_info: Any,
    ) -> None:
        error = "".join(traceback.format_exception_only(*exc_info[:2]))
        self.note(example, f"Traceback (most recent call last):\n...\n{error}")
        super().report_unexpected_exception(out, test, example, exc_info)


def run_session(example: Example) -> str:
    """Runs a fence of `>>>` prompts and compares what each one answers."""
    fence, _ = example.parsed
    test = doctest.DocTestParser().get_doctest(
        fence.body, {}, Path(example.path).name, example.path, fence.line
    )
    test.globs = example.namespace
    report = io.StringIO()
    runner = Session()
    runner.run(test, out=report.write, clear_globs=False)
    if runner.answers:
        EDITS.append(accept.session(fence, runner.answers))
    return report.getvalue()


def run_console(example: Example) -> str | None:
    """Runs the commands in one bash and compares what each one prints."""
    fence, _ = example.parsed
    commands: list[str] = []
    outputs: list[str] = []
    for line in fence.body.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append(line[2:])
            outputs.append("")
        elif line.startswith("> ") and not outputs[-1]:
            commands[-1] += line[2:]
        else:
            outputs[-1] += line
    shell = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f"printf '{DONE}'\n".join([*commands, ""]),
        ],
        cwd=example.namespace[FOLDER].name,
        # At a reader's desk; where CI is set, PyTorch's tests print elsewhere.
        env={name: os.environ[name] for name in os.environ if name != "CI"}
        | {
            "PATH": ":".join(
                (
                    str(_fresh.warm_python()),
                    str(Path(sys.executable).parent),
                    os.environ["PATH"],
                )
            ),
            "REPO": str(regions.ROOT),
            _python.SERVER: _fresh.fork_server(),
        }
        | _session.counting(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=1200,
    )
    printed = shell.stdout.split(DONE)
    if shell.returncode == 0:
        offer_console(fence, outputs, printed)
    for command, expected, got in zip(commands, outputs, printed, strict=False):
        if wrong := differs(
            expected, got, f"$ {command}prints something else."
        ):
            return wrong
    if shell.returncode:
        return f"bash stopped with status {shell.returncode}:\n{shell.stdout}"
    return None


def offer_console(
    fence: regions.Fence, outputs: list[str], printed: list[str]
) -> None:
    """Keeps the commands, and each output that still matches."""
    typed = re.split(r"(?m)^(?=\$ )", fence.body)[1:]
    text = "".join(
        command.removesuffix(expected) + accept.settle(expected, got)
        for command, expected, got in zip(typed, outputs, printed, strict=False)
    )
    if text != fence.body:
        EDITS.append(accept.body(fence, text))


def collect(document: Document) -> Iterator[Region]:
    """What runs on a page; the fences come from the Markdown parser itself."""
    ends = [0, *(i for i, char in enumerate(document.text, 1) if char == "\n")]
    fences = list(regions.find_fences(document.path, document.text))
    for fence, after in zip_longest(fences, fences[1:]):
        if fence.kind not in ("python", "console"):
            continue
        paired = (
            after and after.kind == "output" and regions.follows(after, fence)
        )
        run = run_console if fence.kind == "console" else run_python
        if fence.body.startswith(">>>"):
            run = run_session
        yield Region(
            ends[fence.line - 1],
            ends[fence.end - 1],
            (fence, after if paired else None),
            run,
        )


def reset() -> None:
    """Tests and pages start alike: device 0, nothing pending or counted."""
    _session.restore()
    for index in range(openreg.device_count()):
        openreg.reset_device(index)
        openreg.set_stream(openreg.default_stream(index))
    openreg.set_device(0)
    fallback.reset()
    torch.manual_seed(0)


def begin_page(namespace: dict[str, Any]) -> None:
    reset()
    namespace[FOLDER] = tempfile.TemporaryDirectory(".d", "page-")
    namespace[RAN] = set()


def end_page(namespace: dict[str, Any]) -> None:
    """What a page has made goes with it, also if an operator refers to it."""
    namespace[FOLDER].cleanup()
    for name in list(namespace):
        if not name.startswith("__"):  # Dynamo's, which removes them itself
            del namespace[name]
    gc.collect()


pytest_collect_file = Sybil(
    parsers=[collect],
    path="book",
    patterns=["*.md"],
    setup=begin_page,
    teardown=end_page,
).pytest()


def pytest_configure(config: pytest.Config) -> None:
    if config.option.accept and releases.installed() != releases.current()[0]:
        raise pytest.UsageError(
            f"The pages say what PyTorch {releases.current()[0]} prints, and "
            f"{releases.installed()} is installed: leave --accept out."
        )
    _session.begin(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes a minute is first: last, one worker would idle."""
    items.sort(key=lambda item: item.path.name != "test_site.py")
    _releases.adapt(items)


def pytest_collection_finish() -> None:
    """Thousands of tests are not looked through for garbage each time."""
    gc.collect()
    gc.freeze()


pytest_configure_node = pytest.hookimpl(optionalhook=True)(_session.await_exit)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="write what examples print"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.accept:
        for page in accept.write(EDITS):
            print(f"\nChanged {page}: look at it, and run this again.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    example = getattr(item, "example", None)
    if example is None:
        reset()
        return (yield)
    yield
    # An example that is picked alone first gets what stands above it.
    ran = example.namespace[RAN]
    for earlier in example.document.examples():
        if earlier.start < example.start and earlier.start not in ran:
            ran.add(earlier.start)
            earlier.evaluate()
    ran.add(example.start)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums are split between threads, so bits depend on their number.

    The thread in which a device's backward pass runs has one of its own.
    """

    def set_everywhere(threads: int) -> None:
        torch.set_num_threads(threads)
        for index in range(openreg.device_count()):
            x = torch.ones(1, device=f"openreg:{index}", requires_grad=True)
            y = x + 1
            y.register_hook(lambda _: torch.set_num_threads(threads))
            y.backward()

    before = torch.get_num_threads()
    set_everywhere(1)
    yield
    set_everywhere(before)


@pytest.fixture
def hold() -> Iterator[Callable[..., Gate]]:
    """Holds a stream back, by default the current one, until its gate opens.

    A test that fails must not leave a gate closed: nothing would end.
    """
    gates = []

    def close(stream: torch.Stream | None = None) -> Gate:
        gates.append(Gate())
        gates[-1].hold(stream)
        return gates[-1]

    yield close
    for gate in gates:
        gate.open()


@pytest.fixture
def gate() -> Iterator[_device.Gate]:
    """Holds streams of the device back by its own calls, without PyTorch."""
    gate = _device.Gate()
    yield gate
    gate.open()


@pytest.fixture
def log() -> _device.Log:
    """What kernels and host functions of the device have noted."""
    return _device.Log()


@pytest.fixture
def side() -> Iterator[openreg.Stream]:
    """A stream that is not the default one, and current in the test."""
    stream = openreg.Stream()
    with openreg.stream(stream):
        yield stream


@pytest.fixture
def no_fallback() -> Iterator[None]:
    """For tests of kernels that run on the device, or not at all."""
    with fallback.forbid():
        yield
