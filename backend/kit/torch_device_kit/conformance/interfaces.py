"""What no database has: the rows of the book's tables, as the doctor asks."""

from __future__ import annotations

from functools import cache, partial

import torch

from torch_device_kit import asking, doctor
from torch_device_kit.conformance.groups import Group
from torch_device_kit.conformance.known import Question
from torch_device_kit.suite import TABLES, Row, suite

# Of the tables that the doctor asks, and of those that only this kit does.
OURS = ("random", "training", "stream", "allocator", "devices", "process")
LEVELS = dict.fromkeys((*TABLES, *OURS), "complete")
LEVELS |= {"random": "trains", "training": "trains"}


@cache  # each row that is asked looks itself up
def rows(device: str, devices: int = 2) -> dict[Question, Row]:
    """All rows, those of a table as one kind."""
    found = {}
    for row in suite(device, devices, (*TABLES, "conformance")):
        file, _, name = row.id.partition(".")
        if file == "conformance":
            file, _, name = name.partition(".")
        found[Question(name, "", file)] = row
    return found


def check(
    backend: asking.Backend, name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """One call of a row's program, and the doctor's verdict."""
    devices = max(torch.accelerator.device_count(), 1)
    row = rows(backend.device, devices)[Question(name, dtype, kind)]
    verdict = doctor.judge(row, asking.Reply(**backend.answer(row, devices)))
    said = verdict.said or "it ended the process"
    return 1, [f"{verdict.state}: {said}"] * (verdict.state != doctor.HAS)


def group(device: str, package: str) -> Group:
    ask = partial(check, asking.Backend(device, package, 0))
    return Group(LEVELS, {}, lambda: rows(device), ask)
