"""What came of rows: counts by level and kind, and two runs compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_device_kit.conformance.groups import LEVELS, Group
from torch_device_kit.conformance.known import Declared, Question, head
from torch_device_kit.conformance.run import Answers, read

ALONE = ("in the old one alone", "in the new one alone")
WAYS = ("worse", "better", "changed", "same", *ALONE)
COLUMNS = ("rows", "right", "declared", "wrong", "calls")


def wrong(answers: Answers, declared: Declared) -> dict[Question, list[str]]:
    """The rows that fail, each with what no line explains."""
    left = {
        question: declared.unexplained(question, answer["faults"])
        for question, answer in answers.items()
    }
    return {question: faults for question, faults in left.items() if faults}


def table(
    title: str,
    rows: Mapping[str, Iterable[Question]],
    answers: Answers,
    bad: Mapping[Question, list[str]],
) -> Iterator[str]:
    """A line for each row of the table that has questions, with its counts."""
    yield f"{title:18}" + "".join(f"{column:>10}" for column in COLUMNS)
    for name, questions in rows.items():
        count: Counter[str] = Counter()
        for question in questions:
            listed = question not in bad and answers[question]["faults"]
            end = "wrong" if question in bad else "right"
            count["declared" if listed else end] += 1
            count["rows"] += 1
            count["calls"] += answers[question]["calls"]
        if count:
            told = "".join(f"{count[column]:10}" for column in COLUMNS)
            yield f"{name:18}{told}"


def to_text(
    answers: Answers, declared: Declared, groups: Sequence[Group]
) -> Iterator[str]:
    """What is wrong, then the counts; a level has those below it, too."""
    bad = wrong(answers, declared)
    for question, faults in bad.items():
        yield from (f"{question}: {fault}" for fault in faults)
    of = {kind: group for group in groups for kind in group.kinds}
    level = {
        question: of[question.kind].level(question) for question in answers
    }
    of_level = {
        name: [q for q in answers if level[q] <= at]
        for at, name in enumerate(LEVELS)
        if at in level.values()
    }
    of_kind: dict[str, list[Question]] = {}
    for question in answers:
        of_kind.setdefault(question.kind, []).append(question)
    yield from table("kind", of_kind, answers, bad)
    yield from table("level", of_level, answers, bad)


def compare(old: Path, new: Path) -> tuple[list[str], int]:
    """What two files say of the rows that both have, and how many got worse."""
    (one, before), (two, now) = read(old), read(new)
    lines = [title(old, one), title(new, two)]
    counts: Counter[str] = Counter()
    for question in before.keys() & now.keys():
        was, is_ = before[question]["faults"], now[question]["faults"]
        if set(map(head, was)) == set(map(head, is_)):
            counts["same"] += 1
            continue
        how = "better" if not is_ else "changed" if was else "worse"
        counts[how] += 1
        lines.append(f"{how}: {question}: {'; '.join(is_ or was)}")
    counts[ALONE[0]] = len(before.keys() - now.keys())
    counts[ALONE[1]] = len(now.keys() - before.keys())
    told = ", ".join(f"{counts[how]} {how}" for how in WAYS if counts[how])
    return [*lines[:2], *sorted(lines[2:]), told], counts["worse"]


def title(file: Path, said: Mapping[str, Any]) -> str:
    facts = ("device", "torch", "build", "samples")
    return f"{file}: " + ", ".join(f"{name} {said[name]}" for name in facts)
