"""python -m torch_device_kit conform, and compare: see their `--help`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from torch_device_kit.conformance import groups, known, report, run
from torch_device_kit.conformance.groups import LEVELS, Group
from torch_device_kit.conformance.known import ALL, Declared, Question
from torch_device_kit.doctor import CannotBegin

HELP = """\
Makes each call of PyTorch's databases on the CPU and on a PrivateUse1 device,
and compares what comes of it. Answers are kept, and a later run asks only what
is missing. The exit status is 0 if all is as on the CPU or declared, 1 if not,
2 if there is no such device."""
COMPARE = """\
Says what two files of answers, of two versions of a backend or of PyTorch, say
differently. The exit status is 1 if something was right and is no longer."""


def add_parsers(commands: Any, backend: argparse.ArgumentParser) -> None:
    """Adds both to the commands; `backend` has what names a backend."""
    asks = commands.add_parser("conform", description=HELP, parents=[backend])
    add_choices(asks)
    asks.set_defaults(run=conform)
    both = commands.add_parser("compare", description=COMPARE)
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    both.set_defaults(run=compare)


def add_choices(asks: argparse.ArgumentParser) -> None:
    """What may be chosen of any device."""
    add = asks.add_argument
    add("names", nargs="*", help="patterns for rows, such as linalg.*")
    add("--level", choices=LEVELS, default=LEVELS[-1], help="up to this one")
    add("--kind", default="*", help="with commas: forward,gradient")
    add("--dtype", default="*", help="with commas: float32,bool")
    add("--samples", type=int, default=ALL, help="of each entry, at most")
    add("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    add("--patience", type=float, default=600, help="seconds for a row (600)")
    add("--known", type=Path, help="a file of what the device does not do")
    add("--declare", type=Path, help="a file to write what is not in --known")
    add(
        "--answers",
        type=Path,
        default=Path("conformance"),
        help="the folder for the files of answers (conformance)",
    )


def choose(
    chosen: argparse.Namespace, asked: Sequence[Group]
) -> list[Question]:
    """The rows to ask, those of a lower level first."""
    at = LEVELS.index(chosen.level)
    wanted = {
        question: group.level(question)
        for group in asked
        for question in group.questions()
        if group.level(question) <= at
        and matches(question.name, chosen.names or ["*"])
        and matches(question.kind, chosen.kind.split(","))
        and matches(question.dtype, chosen.dtype.split(","))
    }
    if not wanted:
        raise CannotBegin(
            "No row fits these names, kinds and dtypes; expected names such "
            "as linalg.*, kinds such as "
            f"{', '.join(kind for group in asked for kind in group.kinds)}."
        )
    return sorted(wanted, key=lambda question: wanted[question])


def matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(text, pattern) for pattern in patterns)


def conform(
    chosen: argparse.Namespace, asked: Sequence[Group] | None = None
) -> int:
    """Asks, reports, and returns the exit status."""
    declared = known.read(chosen.known) if chosen.known else Declared()
    asked = asked or groups.every(chosen.device, chosen.package)
    questions = choose(chosen, asked)
    said = answer(chosen, asked, questions, declared)
    answers = {question: said[question] for question in questions}
    print(*report.to_text(answers, declared, asked), sep="\n")
    bad = report.wrong(answers, declared)
    if chosen.declare:
        chosen.declare.write_text(known.declare(bad, chosen.samples), "utf-8")
    stale = chosen.samples >= declared.samples and tell_stale(
        chosen, asked, answers, declared
    )
    return int(bool(bad) or stale)


def tell_stale(
    chosen: argparse.Namespace,
    asked: Sequence[Group],
    answers: run.Answers,
    declared: Declared,
) -> bool:
    """Prints the lines of the file that these answers do not need."""
    kinds = {question.kind for question in answers}
    every = [q for g in asked for q in g.questions() if q.kind in kinds]
    said = {question: a["faults"] for question, a in answers.items()}
    lines = declared.stale(said, every)
    for line in lines:
        print(f"no longer needed in {chosen.known}: {line}")
    return bool(lines)


def settle(declared: Declared) -> None:
    """What the file says of tolerances holds for every process."""
    from torch_device_kit.conformance import compare

    for dtype, limits in declared.tolerances.items():
        compare.TOLERANCES[getattr(torch, dtype)] = limits


def answer(
    chosen: argparse.Namespace,
    asked: Sequence[Group],
    questions: Sequence[Question],
    declared: Declared,
) -> run.Answers:
    """The answers of this build, those to these questions among them."""
    torch.set_num_threads(1)  # and no pool of them, which a fork would lose
    settle(declared)
    checks = {kind: group.check for group in asked for kind in group.kinds}
    judge = run.Judge(
        chosen.device, chosen.package, chosen.patience, chosen.samples, checks
    )
    head = run.begin(judge)
    chosen.answers.mkdir(parents=True, exist_ok=True)
    file = chosen.answers / run.name_of(head)
    said, found = run.read(file)
    if not said:
        file.write_text(json.dumps(head) + "\n")
    missing = [question for question in questions if question not in found]
    print(f"{len(questions)} rows, {len(missing)} to ask; answers in {file}")
    run.collect(judge, missing, file, declared, chosen.jobs)
    return run.read(file)[1]


def compare(chosen: argparse.Namespace) -> int:
    lines, worse = report.compare(chosen.old, chosen.new)
    print(*lines, sep="\n")
    return int(worse > 0)
