"""What comes of a few lines of Python, whatever they do to their process."""

from __future__ import annotations

import ast
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    """What came of a program, in one line of text each."""

    value: str  # the repr of its last line's value, or the error
    warnings: tuple[str, ...] = ()
    raised: bool = False

    @property
    def text(self) -> str:
        """The error, else the first warning, else the value."""
        if self.warnings and not self.raised:
            return self.warnings[0]
        return self.value


def one_line(text: str) -> str:
    return " ".join(text.split())


def ask(code: str, names: dict[str, object]) -> Answer:
    """Runs `code`, whose last line is an expression, with these names."""
    tree = ast.parse(code)
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        raise ValueError(f"The last line is no expression:\n{code}")
    raised = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(tree, "use", "exec"), names)
            value = ast.Expression(last.value)
            text = repr(eval(compile(value, "use", "eval"), names))
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            raised = True
    told = (f"{w.category.__name__}: {w.message}" for w in caught)
    return Answer(one_line(text), tuple(map(one_line, told)), raised)


def ended(status: int) -> str:
    """How a process ended, from what `os.waitpid` says of it."""
    if os.WIFSIGNALED(status):
        return f"ends with {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ends with exit status {os.WEXITSTATUS(status)}"


def forked(work: Callable[..., str], *arguments: object) -> str:
    """What a function returns in a process of its own, or how that ended."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with os.fdopen(theirs, "w") as pipe:
                pipe.write(work(*arguments))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return text if status == 0 else ended(status)
