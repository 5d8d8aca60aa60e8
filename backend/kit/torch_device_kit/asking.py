"""Processes that load a backend, and answer one row after the other."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import select
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from torch_device_kit import answers, reach

T = TypeVar("T")


class Reply(NamedTuple):
    """What came of a row."""

    answer: Any  # nothing where the process ended
    ended: str = ""  # how it ended
    last_words: str = ""  # what it printed last
    seconds: float = 0.0


@dataclass(frozen=True)
class Backend:
    """What a process has to load, and to ask."""

    device: str
    package: str
    patience: float  # seconds for a row

    def load(self) -> int:
        """Imports it; returns the number of devices, 1 if it does not say."""
        importlib.import_module(self.package)
        with contextlib.suppress(Exception):
            return max(torch.accelerator.device_count(), 1)
        return 1

    def saved_and_loaded(self, map_location: Any) -> torch.Tensor:
        file = io.BytesIO()
        torch.save(torch.ones(1, device=f"{self.device}:0"), file)
        file.seek(0)
        loaded: torch.Tensor = torch.load(file, map_location=map_location)
        return loaded

    def names(self, count: int) -> dict[str, Any]:
        """What a program may use: `there` is the last device."""
        found: dict[str, Any] = {
            "torch": torch,
            "warnings": warnings,
            "package": self.package.partition(".")[0],
            "last": count - 1,
            "loaded": self.saved_and_loaded,
        }
        for function in (
            reach.guard_type,
            reach.default_stream,
            reach.is_built,
            reach.from_blob,
        ):
            found[function.__name__] = function
        with contextlib.suppress(RuntimeError):  # nobody has given the name
            found["there"] = torch.device(self.device, count - 1)
        return found

    def answer(self, row: Any, count: int) -> dict[str, Any]:
        """Of a row of the suite; the process is then as it was before."""
        module = vars(getattr(torch, self.device, torch))
        before = dict(module)
        begun = time.monotonic()
        answer = answers.ask(row.use, self.names(count))
        seconds = time.monotonic() - begun
        with contextlib.suppress(Exception):
            torch.accelerator.set_device_index(0)
        for name in {n for n in module if callable(module[n])} - before.keys():
            del module[name]
        module.update({n: old for n, old in before.items() if callable(old)})
        return {"answer": answer, "seconds": seconds}


class Child:
    """A process of its own, forked; it says one line for each answer."""

    def __init__(self, backend: Backend, rows: Sequence[Any]) -> None:
        self.printed = tempfile.TemporaryFile("w+")  # noqa: SIM115
        ours, theirs = os.pipe()
        with warnings.catch_warnings(action="ignore"):
            self.number = os.fork()  # NumPy has threads, which know of forks
        if self.number == 0:
            os.close(ours)
            self.work(backend, rows, theirs)
        os.close(theirs)
        self.pipe = ours
        self.unread = b""
        self.silent = False  # for longer than anybody waits

    def work(self, backend: Backend, rows: Sequence[Any], pipe: int) -> None:
        """The child's life; it leaves nothing to be done at its exit."""
        os.dup2(self.printed.fileno(), 1)
        os.dup2(self.printed.fileno(), 2)
        status = 1
        try:
            count = backend.load()
            name = torch._C._get_privateuse1_backend_name()
            say(pipe, {"count": count, "name": name})
            for row in rows:
                say(pipe, backend.answer(row, count))
            status = 0
        except BaseException as error:
            say(pipe, {"error": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(status)

    def line(self, patience: float) -> dict[str, Any] | None:
        """What it says next; nothing if it ends, or says nothing so long."""
        while b"\n" not in self.unread:
            if not select.select([self.pipe], [], [], patience)[0]:
                self.silent = True
                return None
            if not (more := os.read(self.pipe, 1 << 16)):
                return None
            self.unread += more
        said, _, self.unread = self.unread.partition(b"\n")
        found: dict[str, Any] = json.loads(said)
        return found

    def end(self) -> str:
        """How it ended; what C++ said then, else its last line, is kept."""
        os.close(self.pipe)
        status = self.status()
        with self.printed:
            self.printed.seek(0)
            lines = self.printed.read().splitlines()
        why = [line for line in lines if "what():" in line]
        words = (why or [line for line in lines if line] or [""])[-1]
        self.last_words = answers.one_line(words) if status else ""
        return "hangs" if status is None else status

    def status(self) -> str | None:
        """How it ended, "" if well; one that has not ended is killed."""
        options = os.WNOHANG if self.silent else 0
        number, status = os.waitpid(self.number, options)
        if number:
            return answers.ended(status) if status else ""
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        return None


def say(pipe: int, what: dict[str, Any]) -> None:
    os.write(pipe, json.dumps(what).encode() + b"\n")


def begin(backend: Backend) -> dict[str, Any]:
    """Of a process that only loads it: `count` and `name`, or the `error`."""
    child = Child(backend, [])
    said = child.line(60)
    ended = child.end()
    return said or {"error": f"the process {ended}. {child.last_words}"}


def ask(backend: Backend, rows: Sequence[T]) -> Iterator[tuple[T, Reply]]:
    """Asks rows in one process, and goes on in another if that one ends.

    A row in which it ended is asked again, as the first one of the next: what
    came before may be to blame.
    """
    left = list(rows)
    while left:
        child = Child(backend, left)
        first, said = left[0], child.line(60)
        while left and (said := child.line(backend.patience)):
            yield left.pop(0), Reply(**said)
        ended = child.end()
        if left and (left[0] is first or ended == "hangs"):
            yield left.pop(0), Reply(None, ended, child.last_words)
