"""What can be asked: groups of rows, each with the program that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from torch_device_kit.conformance.known import Question

LEVELS = ("runs", "trains", "complete")
# Of a row and a number of samples: the calls that it made, and the faults.
Check = Callable[[str, str, str, int], tuple[int, list[str]]]


class Group(NamedTuple):
    """Rows that one program answers."""

    kinds: Mapping[str, str]  # each with the level that it is of
    dtypes: Mapping[str, str]  # likewise
    questions: Callable[[], Iterable[Question]]
    check: Check

    def level(self, question: Question) -> int:
        """The first of `LEVELS` that asks the row."""
        of = self.kinds[question.kind], self.dtypes.get(question.dtype, "runs")
        return max(map(LEVELS.index, of))


def every(device: str, package: str) -> list[Group]:
    """All groups of the kit; to import them takes seconds."""
    from torch_device_kit.conformance import database, interfaces, learning

    databases = [
        Group(of.KINDS, of.DTYPES, of.questions, of.check)
        for of in (database, learning)
    ]
    return [*databases, interfaces.group(device, package)]
