"""What is not as on the CPU: the rows of book/rows/operators_known.toml.

A call that differs and is not listed fails, and so does a row that no call
needs any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch
from typing import NamedTuple

import _rows


class Question(NamedTuple):
    """What is asked of the device and the CPU."""

    operator: str
    dtype: str
    kind: str


class Known(NamedTuple):
    operator: str  # an entry's name, with * for what varies
    kinds: str  # those of _operators or sweep_compiled, or "all"
    dtypes: str  # those of _operators.DTYPES, or "all"
    says: str  # part of each fault, or "crash"
    reason: str

    def covers(self, question: Question) -> bool:
        """Whether the line speaks of the question."""
        return (
            fnmatch(question.operator, self.operator)
            and (self.kinds == "all" or question.kind in self.kinds.split())
            and (self.dtypes == "all" or question.dtype in self.dtypes.split())
        )


KNOWN = [
    Known(operator, *(row[name] for name in Known._fields[1:]))
    for row in _rows.read("operators_known")["known"]
    for operator in row["operators"]
]

FOLLOWS = (
    "TorchScript's interpreter has this function, which follows the pointer of "
    "any tensor. It has no dispatch key, so nothing can be registered for it."
)
COMPOSED = (
    "It follows the pointer of the shape, which has to be on the CPU. A kernel "
    "of ours would take its derivative away."
)
READS = (
    "TorchScript's interpreter reads the dtype also where none is given, on "
    "the CPU, too: what lies there decides how that ends."
)
# Operators whose calls may end the process, for sweep_ends.py.
ENDS = {
    "aten::_tensor_to_list.default": FOLLOWS,
    "aten::_reshape_from_tensor.default": COMPOSED,
    "aten::to.prim_Device": READS,
    "aten::to.prim_dtype": READS,
}


def corrupts(question: Question) -> bool:
    """Whether the list says that it crashes: its process is not to be used on.

    The crash may come in another question, long after the heap was hit.
    """
    return any(k.says == "crash" and k.covers(question) for k in KNOWN)


def unexplained(question: Question, faults: list[str]) -> list[str]:
    """The faults that no line of the list explains."""
    says = [known.says for known in KNOWN if known.covers(question)]
    return [f for f in faults if not any(said in f for said in says)]


def stale(
    answers: dict[Question, list[str]], every: Iterable[Question]
) -> list[Known]:
    """The lines that no answer needs, if every question of theirs was asked.

    `every` has those of one sweep; a line may be of the other.
    """
    every = list(every)
    return [
        known
        for known in KNOWN
        if (mine := set(filter(known.covers, every)))
        and answers.keys() >= mine
        and not any(
            known.says in fault
            for question in mine
            for fault in answers[question]
        )
    ]
