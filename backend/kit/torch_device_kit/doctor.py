"""Asks a device the rows of the suite, and says what each answer means.

    from torch_device_kit import doctor
    report = doctor.examine("npu", "torch_npu")
    report.states()["guard.getDevice"]  # doctor.HAS

Rows share a process; one that dies or hangs costs its row alone. So the caller
must have loaded no backend, which `TORCH_DEVICE_BACKEND_AUTOLOAD=0` sees to: a
process that has used a device may not be forked.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch

from torch_device_kit import asking
from torch_device_kit.asking import Reply
from torch_device_kit.suite import Row, like, suite

HAS = "has"
MISSING = "missing"
WRONG = "present but wrong"
NOT_TRIED = "not tried: would end the process"
STATES = (HAS, MISSING, WRONG, NOT_TRIED)

# What PyTorch says where a backend has left something out (torch 2.13).
LEFT_OUT = re.compile(
    r"Could not run '.*' with arguments from the"
    r"|You should register `PrivateUse1HooksInterface`"
    r"|Please register PrivateUse1HooksInterface"
    r"|Backend doesn.t support"
    r"|PyTorch is not linked with support for"
    r"|is not a DeviceAllocator"
    r"|it has no implementation for the backend"
    r"|(?:module '.*'|'_DummyBackendModule' object) has no attribute"
    r"|^NotImplementedError"
)
# Without this one, each tensor on the device ends its process.
BASE = "checklist.SetAllocator"


class Verdict(NamedTuple):
    """What came of a row."""

    row: Row
    state: str  # one of STATES
    said: str = ""  # the answer, in one line
    because: str = ""  # the row whose lack this is, if another's
    seconds: float = 0.0


class Report(NamedTuple):
    """What came of all of them."""

    device: str
    package: str
    devices: int
    verdicts: list[Verdict]
    seconds: float

    def states(self) -> dict[str, str]:
        return {verdict.row.id: verdict.state for verdict in self.verdicts}

    def counts(self) -> dict[str, int]:
        found = Counter(verdict.state for verdict in self.verdicts)
        return {state: found[state] for state in STATES}


class CannotBegin(Exception):
    """There is no such device to ask."""


def examine(
    device: str,
    package: str,
    only: str = "*",
    quick: bool = False,
    patience: float = 60.0,
) -> Report:
    """Asks the device of this name, which importing the package brings.

    `only` has patterns for the ids of rows with commas between, as in
    `guard.*,!guard.block`; those after an exclamation mark are left out, and
    `quick` leaves out what takes seconds to import. A row without an answer
    after `patience` seconds hangs.
    Raises CannotBegin if the package cannot be imported, or names its device
    otherwise.
    """
    begun = time.monotonic()
    backend = asking.Backend(device, package, patience)
    devices = look(backend)
    rows = suite(device, devices)
    chosen = [row for row in choose(rows, only) if not (quick and row.slow)]
    if not chosen:
        raise CannotBegin(f"No row has an id like {only!r}, as guard.* does.")
    verdicts = explain(ask(backend, chosen), rows)
    return Report(device, package, devices, verdicts, time.monotonic() - begun)


def choose(rows: list[Row], only: str) -> list[Row]:
    """The rows whose ids fit the patterns."""
    patterns = only.split(",")
    wanted = [p for p in patterns if not p.startswith("!")] or ["*"]
    unwanted = [p[1:] for p in patterns if p.startswith("!")]
    return [
        row
        for row in rows
        if any(fnmatchcase(row.id, p) for p in wanted)
        and not any(fnmatchcase(row.id, p) for p in unwanted)
    ]


def look(backend: asking.Backend) -> int:
    """The number of devices, seen by a process that loads the backend."""
    if torch._C._get_privateuse1_backend_name() != "privateuseone":
        raise CannotBegin(
            "This process has loaded a backend, so it may not be forked: set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 before PyTorch is imported."
        )
    seen = asking.begin(backend)
    if error := seen.get("error"):
        raise CannotBegin(f"import {backend.package} failed: {error}")
    if seen["name"] not in (backend.device, "privateuseone"):
        raise CannotBegin(
            f"{backend.package} calls its device {seen['name']!r}, expected "
            f"{backend.device!r}: say --device {seen['name']}."
        )
    return int(seen["count"])


def ask(backend: asking.Backend, rows: list[Row]) -> list[Verdict]:
    """A verdict on each; the slow ones are asked last."""
    found: dict[Row, Verdict] = {}
    quick = [row for row in rows if not row.slow]
    for row, reply in asking.ask(backend, quick):
        found[row] = judge(row, reply)
        if row.id == BASE and reply.ended:
            break
    rest = [row for row in rows if row.slow] * (len(found) == len(quick))
    for row, reply in asking.ask(backend, rest):
        found[row] = judge(row, reply)
    return [found.get(row, Verdict(row, NOT_TRIED)) for row in rows]


def judge(row: Row, reply: Reply) -> Verdict:
    """What a reply says of the device."""
    if reply.ended:
        missing = any(like(text, reply.ended) for text in row.missing)
        missing = missing or bool(LEFT_OUT.search(reply.last_words))
        said = ": ".join(filter(None, (reply.ended, reply.last_words)))
        return Verdict(row, MISSING if missing else WRONG, said)
    value, told, raised = reply.answer
    for text in (value, *told):
        if any(like(missing, text) for missing in row.missing):
            return Verdict(row, MISSING, text, "", reply.seconds)
    right = raised == ("Error" in row.right) and like(row.right, value)
    lacks = bool(LEFT_OUT.search(value))
    state = HAS if right else MISSING if lacks else WRONG
    return Verdict(row, state, value, "", reply.seconds)


def explain(verdicts: list[Verdict], rows: list[Row]) -> list[Verdict]:
    """Names the row whose lack is behind what another one says."""
    lacks = {verdict.row.id for verdict in verdicts if verdict.state != HAS}
    causes = [row for row in rows if row.id in lacks]
    return [name_cause(verdict, causes) for verdict in verdicts]


def name_cause(verdict: Verdict, causes: list[Row]) -> Verdict:
    """What is missing because of another row is not wrong itself."""
    own = any(like(text, verdict.said) for text in verdict.row.missing)
    if verdict.state in (HAS, NOT_TRIED) or own:
        return verdict
    name = re.search(r"has no attribute '(\w+)'$", verdict.said)
    for row in causes:
        says = (text for text in row.missing if "Error: " in text)
        met = any(like(text, verdict.said) for text in says)
        met = met or row.id == verdict.row.needs
        met = met or bool(name and name[1] == row.looked_up)
        if met and row != verdict.row:
            return verdict._replace(state=MISSING, because=row.id)
    return verdict
