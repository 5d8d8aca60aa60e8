"""What a device is known not to do: a file of lines, each with its reason.

    [[known]]
    names = ["tril", "linalg.*"]
    kinds = "forward gradient"
    dtypes = "all"
    says = "value"
    reason = "The driver rounds its input to bfloat16."

A row that fails is then no fault, if each thing that it says has `says` in it.
A name, kind or dtype of a line that no row needs is a fault itself. `samples`
above the lines is how many of each entry must be asked to need all of them,
without it all; and `[tolerances]` how far values may be apart, relative and
absolute, as in `bfloat16 = [0.05, 0.01]`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import NamedTuple

from torch_device_kit.doctor import CannotBegin

ALL = 10_000  # more samples than any entry has
# How what a row says begins, without numbers and texts that vary.
HEAD = re.compile(
    r"(?:(?:result|argument) \d+: )?(error: \w+|generator: .*|[^:(\[]+)"
)


class Question(NamedTuple):
    """A row: what is asked of the device and the CPU."""

    name: str  # an entry of a database, or what a row of another group does
    dtype: str  # "" where that means nothing
    kind: str

    def __str__(self) -> str:
        return " ".join(filter(None, self))


class Known(NamedTuple):
    """One name, kind and dtype of a line."""

    name: str  # with * for what varies
    kind: str  # or "all"
    dtype: str  # or "all"
    says: str
    reason: str

    def covers(self, question: Question) -> bool:
        """Whether the line speaks of the row."""
        return (
            self.kind in ("all", question.kind)
            and self.dtype in ("all", question.dtype)
            and fnmatch(question.name, self.name)
        )


class Declared(NamedTuple):
    """What a file says."""

    lines: Sequence[Known] = ()
    samples: int = ALL
    tolerances: Mapping[str, tuple[float, float]] = {}

    def corrupts(self, question: Question) -> bool:
        """Whether it is known to crash: its process is not to be used on.

        Where the heap was hit the crash may come in another row, or not at
        all, and then the row may say anything.
        """
        found = (k for k in self.lines if k.says == "crash")
        return any(known.covers(question) for known in found)

    def unexplained(self, question: Question, said: list[str]) -> list[str]:
        """What a row says that no line explains."""
        says = (
            [k.says for k in self.lines if k.covers(question)] if said else []
        )
        if "crash" in says:
            return []
        return [fault for fault in said if not any(s in fault for s in says)]

    def stale(
        self, answers: Mapping[Question, list[str]], every: Iterable[Question]
    ) -> list[Known]:
        """The lines that no answer needs, if all rows of theirs were asked.

        `every` has the rows of one run; a line may be of another.
        """
        of_kind: dict[str, list[Question]] = {"all": []}
        for question in every:
            of_kind["all"].append(question)
            of_kind.setdefault(question.kind, []).append(question)
        return [
            known
            for known in self.lines
            if (mine := set(filter(known.covers, of_kind.get(known.kind, ()))))
            and answers.keys() >= mine
            and not any(
                known.says == "crash" or known.says in fault
                for question in mine
                for fault in answers[question]
            )
        ]


def read(file: Path) -> Declared:
    """The lines of a file. Raises CannotBegin if one has no reason."""
    data = tomllib.loads(file.read_text("utf-8"))
    lines = []
    for line in data.get("known", []):
        if not line["reason"].strip():
            raise CannotBegin(
                f"{file}: the line for {', '.join(line['names'])} has no "
                "reason: say why the device does not do it."
            )
        each = line["names"], line["kinds"].split(), line["dtypes"].split()
        ends = (line["says"], line["reason"])
        lines += [Known(*what, *ends) for what in product(*each)]
    tolerances = {
        dtype: (float(near), float(far))
        for dtype, (near, far) in data.get("tolerances", {}).items()
    }
    return Declared(lines, data.get("samples", ALL), tolerances)


def head(fault: str) -> str:
    """The part of a fault that is the same each time, for `says`.

    >>> head("result 0: value: Tensor-likes are not close! Mismatched ...")
    'value'
    """
    found = HEAD.match(fault)
    return found[1].strip() if found else fault


def declare(
    wrong: Mapping[Question, list[str]], samples: int, reason: str = ""
) -> str:
    """The lines of a file for rows that fail; the reasons are yours to give."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for question, faults in wrong.items():
        for says in dict.fromkeys(map(head, faults)):
            at = (says, question.kind, question.dtype or "all")
            names.setdefault(at, []).append(question.name)
    dtypes: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (says, kind, dtype), named in names.items():
        dtypes.setdefault((says, kind, tuple(named)), []).append(dtype)
    lines = [f"samples = {samples}\n" * (samples < ALL)]
    for (says, kind, named_so), of in dtypes.items():
        values = (list(named_so), kind, " ".join(of), says, reason)
        texts = (json.dumps(v, indent=2, ensure_ascii=False) for v in values)
        keys = ("names", "kinds", "dtypes", "says", "reason")
        told = "\n".join(map(" = ".join, zip(keys, texts, strict=True)))
        lines.append(f"\n[[known]]\n{told}\n")
    return "".join(lines).lstrip()
