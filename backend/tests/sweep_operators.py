"""All of PyTorch's operator database, on the device and on the CPU.

`nox -s ops` runs this. Each question (an operator, a dtype, and what is asked)
goes to a worker process, so that one that crashes costs its own answer only.
Answers are kept in a file for this very build, and a later run asks only what
is missing. Exits with 1 when a fault is not in operators_known.toml, or when a
line there is no longer needed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

import _operators
import sweep_compiled
import sweep_ends
import torch_openreg
import torch_openreg._C
from operators_known import Question, corrupts, stale, unexplained

DTYPES, KINDS = _operators.DTYPES, _operators.KINDS
ROOT = Path(__file__).parents[2]
ALL = 10_000  # more samples than any entry has


Answers = dict[Question, dict[str, Any]]


def questions(
    pattern: str = "*",
    dtypes: Sequence[str] = DTYPES,
    kinds: Sequence[str] = KINDS,
) -> Iterator[Question]:
    for dtype, kind in itertools.product(dtypes, kinds):
        for name, op in _operators.ENTRIES.items():
            if fnmatch(name, pattern) and _operators.applies(
                op, getattr(torch, dtype), kind
            ):
                yield Question(name, dtype, kind)


def build_key(samples: int) -> str:
    """A name for what the answers depend on."""
    package = Path(torch_openreg.__file__).parent
    libraries = Path(torch_openreg._C.__file__).parent
    files = [*package.rglob("*.py"), *libraries.rglob("*.so")]
    text = hashlib.sha256(f"{torch.__version__} {samples}".encode())
    asks = Path(_operators.__file__), Path(sweep_compiled.__file__)
    for file in [*sorted(files), *asks]:
        text.update(file.read_bytes())
    return text.hexdigest()[:16]


def read(file: Path) -> Answers:
    """The answers that were kept; a line that was cut off is taken back."""
    if not file.exists():
        return {}
    whole, end, _ = file.read_text().rpartition("\n")
    file.write_text(whole + end)
    answers = [json.loads(line) for line in whole.splitlines()]
    return {Question(*answer["question"]): answer for answer in answers}


def work(samples: int) -> None:
    """A worker: questions come in, a line each, and answers go out."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        question = Question(*json.loads(line))
        compiled = question.kind in sweep_compiled.KINDS
        check = (sweep_compiled if compiled else _operators).check
        try:
            calls, faults = check(*question, samples)
        except Exception as error:
            calls, faults = 0, [f"not asked: {error!r}"[:300]]
        answer = {"question": question, "calls": calls, "faults": faults[:8]}
        print(json.dumps(answer), flush=True)


class Worker:
    """A process that answers, and is replaced when it dies."""

    def __init__(self, samples: int) -> None:
        self.command = [sys.executable, __file__, f"--work={samples}"]
        self.process: subprocess.Popen[str] | None = None

    def ask(self, question: Question, seconds: int) -> dict[str, Any]:
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                self.command,
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        late = threading.Timer(seconds, self.process.kill)
        late.start()
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        over = not answer or corrupts(question)
        status = self.close() if over else 0
        late.cancel()
        if answer and status == 0:
            found: dict[str, Any] = json.loads(answer)
            return found
        fault = f"crash {status}"
        return {"question": question, "calls": 1, "faults": [fault]}

    def close(self) -> int:
        """Ends the process, if there is one; returns its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.communicate()
        return process.returncode


def collect(
    missing: list[Question], file: Path, arguments: argparse.Namespace
) -> None:
    """Asks what is missing, in several processes, and appends the answers."""
    waiting: queue.SimpleQueue[Question] = queue.SimpleQueue()
    for question in missing:
        waiting.put(question)
    lock = threading.Lock()

    def serve(answers: Any) -> None:
        worker = Worker(arguments.samples)
        while True:
            try:
                question = waiting.get_nowait()
            except queue.Empty:
                worker.close()
                return
            answer = worker.ask(question, arguments.timeout)
            with lock:
                answers.write(json.dumps(answer) + "\n")
                answers.flush()

    with file.open("a") as answers:
        threads = [
            threading.Thread(target=serve, args=(answers,))
            for _ in range(arguments.jobs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def tell_stale(answers: Answers, kinds: Sequence[str]) -> int:
    """Prints the lines of the list that a sweep no longer needs."""
    found = {question: a["faults"] for question, a in answers.items()}
    lines = stale(found, questions(kinds=kinds))
    for known in lines:
        print(f"no longer needed in operators_known.toml: {known}")
    return len(lines)


def report(answers: Answers, whole: bool) -> int:
    """Prints what was found; returns the number of faults.

    If the answers are to all samples, the lines of the list must be needed.
    """
    count: Counter[tuple[str, str]] = Counter()
    wrong = 0
    for question, answer in answers.items():
        faults = unexplained(question, answer["faults"])
        verdict = (
            "wrong" if faults else "listed" if answer["faults"] else "right"
        )
        count[question.dtype, verdict] += 1
        count[question.dtype, "calls"] += answer["calls"]
        for fault in faults:
            wrong += 1
            print(" ".join(question), fault, sep=": ")
    wrong += tell_stale(answers, KINDS) if whole else 0
    columns = ("right", "listed", "wrong", "calls")
    print(f"{'dtype':10}", *(f"{column:>8}" for column in columns))
    for dtype in dict.fromkeys(question.dtype for question in answers):
        row = (f"{count[dtype, column]:8}" for column in columns)
        print(f"{dtype:10}", *row)
    return wrong


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nox -s ops --")
    parser.add_argument("pattern", nargs="?", default="*", help="operators")
    parser.add_argument(
        "--dtype", nargs="+", choices=DTYPES, default=DTYPES, metavar="DTYPE"
    )
    parser.add_argument(
        "--kind",
        nargs="+",
        choices=KINDS + sweep_compiled.KINDS,
        default=KINDS,
        metavar="KIND",
    )
    parser.add_argument("--samples", type=int, default=ALL, help="at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=int, default=600, help="seconds each")
    parser.add_argument(
        "--ends", action="store_true", help="look for ends of the process"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="by torch.compile, and eager"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the counts of all compiled answers for the book",
    )
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    if "--compiled" in sys.argv:
        kinds, dtypes = sweep_compiled.KINDS, sweep_compiled.DTYPES
        parser.set_defaults(kind=kinds, dtype=dtypes, samples=1)
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.work is not None:
        work(arguments.work)
        return 0
    if arguments.ends:
        return sweep_ends.main(arguments.pattern)
    folder = ROOT / "build" / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{build_key(arguments.samples)}.jsonl"
    chosen = (arguments.dtype, arguments.kind)
    wanted = list(questions(arguments.pattern, *chosen))
    known = read(file)
    missing = [question for question in wanted if question not in known]
    print(f"{len(wanted)} questions, {len(missing)} to ask; answers in {file}")
    collect(missing, file, arguments)
    answers = read(file)
    asked = {question: answers[question] for question in wanted}
    if arguments.compiled:
        if arguments.record:
            sweep_compiled.record(answers)
        wrong = sweep_compiled.report(asked)
        return min(wrong + tell_stale(asked, sweep_compiled.KINDS), 1)
    return min(report(asked, whole=arguments.samples == ALL), 1)


if __name__ == "__main__":
    sys.exit(main())
