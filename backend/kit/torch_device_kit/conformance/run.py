"""Asks rows in several processes, and keeps the answers in a file.

A row that ends its process, or has no answer in time, costs only itself. The
file belongs to one build of the backend, one PyTorch and one kit; a later run
asks only what is missing in it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torch_device_kit import asking, doctor
from torch_device_kit.conformance.groups import Check
from torch_device_kit.conformance.known import Declared, Question

Answer = dict[str, Any]
Answers = dict[Question, Answer]
KIT = Path(__file__).parents[1]
# Libraries of PyTorch and of the system, which no backend has brought.
TORCH = re.escape(str(Path(torch.__file__).parent))
OTHERS = re.compile(rf"{TORCH}/|(?!.*-packages/)({sys.base_prefix}|/usr|/lib)/")
MOST = 200  # rows for one process


@dataclass(frozen=True)
class Judge(asking.Backend):
    """A process that loads a backend, and compares it with the CPU."""

    samples: int
    checks: Mapping[str, Check] = field(repr=False)  # by kind

    def answer(self, question: Question, count: int) -> dict[str, Any]:
        if not question.kind:
            return {"answer": identity(self.package)}
        begun = time.monotonic()
        try:
            check = self.checks[question.kind]
            calls, faults = check(*question, self.samples)
        except Exception as error:
            calls, faults = 0, [f"not asked: {error!r}"[:300]]
        seconds = round(time.monotonic() - begun, 3)
        return {"answer": [calls, faults[:8], seconds]}


def identity(package: str) -> str:
    """A name for the files that a backend consists of, in this process."""
    module = sys.modules[package]
    folders = getattr(module, "__path__", None)
    files = {Path(module.__file__ or "")}
    files |= {f for d in folders or () for f in Path(d).rglob("*.py")}
    mapped = Path("/proc/self/maps").read_text()
    libraries = {path for path in re.findall(r"/.*\.so.*", mapped)}
    files |= {Path(path) for path in libraries if not OTHERS.match(path)}
    return digest(sorted(file for file in files if file.is_file()))


def digest(files: Sequence[Path]) -> str:
    text = hashlib.sha256()
    for file in files:
        text.update(file.read_bytes())
    return text.hexdigest()[:12]


def begin(judge: Judge) -> dict[str, Any]:
    """What answers are of: the head of their file. May raise CannotBegin."""
    devices = doctor.look(judge)
    checks = {check.__module__ for check in judge.checks.values()}
    asks = {Path(sys.modules[module].__file__ or "") for module in checks}
    ((_, reply),) = asking.ask(judge, [Question("identity", "", "")])
    return {
        "device": judge.device,
        "package": judge.package,
        "devices": devices,
        "torch": str(torch.__version__),
        "build": str(reply.answer),
        "kit": digest(sorted({*KIT.rglob("*.py"), *asks})),
        "samples": judge.samples,
    }


def name_of(head: Mapping[str, Any]) -> str:
    """A name for the file of these answers."""
    text = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    return f"{head['device']}-{text.hexdigest()[:12]}.jsonl"


def read(file: Path) -> tuple[dict[str, Any], Answers]:
    """The head of a file and its answers; a line cut off is taken back."""
    if not file.exists():
        return {}, {}
    whole, end, _ = file.read_text().rpartition("\n")
    file.write_text(whole + end)
    if not whole:
        return {}, {}
    head, *answers = map(json.loads, whole.splitlines())
    return head, {Question(*answer["row"]): answer for answer in answers}


def chunks(
    questions: Sequence[Question], declared: Declared, jobs: int
) -> Iterator[list[Question]]:
    """Rows for one process each; those that corrupt it have one alone."""
    alone = {q for q in questions if declared.corrupts(q)}
    others = [q for q in questions if q not in alone]
    size = max(1, min(MOST, len(others) // (4 * jobs)))
    for at in range(0, len(others), size):
        yield others[at : at + size]
    yield from ([question] for question in alone)


def ask(judge: Judge, file: Path, questions: list[Question]) -> int:
    """Asks rows and adds the answers to the file; returns how many."""
    with file.open("a", buffering=1) as answers:
        for question, reply in asking.ask(judge, questions):
            calls, faults, seconds = reply.answer or (1, [], 0.0)
            if reply.ended:
                crash = reply.ended.replace("ends", "crash: ends")
                said = f"{crash}: {reply.last_words}".removesuffix(": ")
                faults = [said[:300]]
            line: Answer = {"row": question, "calls": calls, "faults": faults}
            line["seconds"] = seconds
            answers.write(json.dumps(line) + "\n")
    return len(questions)


def collect(
    judge: Judge,
    questions: Sequence[Question],
    file: Path,
    declared: Declared,
    jobs: int,
) -> None:
    """Asks all of these, in so many processes at once."""
    work = partial(ask, judge, file)
    pool = multiprocessing.get_context("fork").Pool(jobs)
    with pool:
        done = 0
        for count in pool.imap_unordered(
            work, chunks(questions, declared, jobs)
        ):
            done += count
            if sys.stderr.isatty():
                told = f"\r{done} of {len(questions)} rows"
                print(told, end="", file=sys.stderr)
