"""The tables of book/about/scope.md."""

import warnings

import torch

from rows import rows
from tables.common import chapter, table


def runs(probe: str) -> bool:
    """Whether the installed backend can do it, asked by doing it."""
    names = {"torch": torch, "x": torch.ones(4, device="openreg")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(probe, names)
    except (RuntimeError, AttributeError, AssertionError, KeyError, ValueError):
        return False  # other exceptions are mistakes in the probe
    return True


def state(probes: dict[str, str]) -> tuple[str, list[str]]:
    """The state in a word, and what is still missing."""
    missing = [name for name, probe in probes.items() if not runs(probe)]
    if not missing:
        return "works", []
    return "not yet" if len(missing) == len(probes) else "partly", missing


def subsystems() -> str:
    """What works today, found by trying it when this page was printed."""
    found = []
    for part in rows("scope.subsystems"):
        word, missing = state(part.probes)
        done = ", ".join(p for p in part.probes if p not in missing)
        tried = f"{done}; not yet: " * (word == "partly") + ", ".join(missing)
        of_part = part.part, part.name, f"**{word}**", chapter(part.page)
        found.append((*of_part, tried or done))
    head = "Part", "Subsystem", "State", "Chapter"
    return table((*head, "Tried while printing this page"), found)
