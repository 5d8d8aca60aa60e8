"""The releases of PyTorch that are current, and where each has its place.

pyproject.toml lists them, in the order of their age. A command takes the first
unless it is told another: `nox -s tests -- --torch 2.14.1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OPTION = "--torch"


def current() -> tuple[str, ...]:
    """Found as CMake finds them, also by a Python that cannot read TOML."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (line,) = re.findall(r"^torch = \[(.*)\]$", project, re.M)
    return tuple(re.findall(r'"([\d.]+)"', line))


def installed() -> str:
    """The release that this Python has, or else the first."""
    known = current()
    found = [x.version.partition("+")[0] for x in distributions(name="torch")]
    return found[0] if found and found[0] in known else known[0]


class Places(NamedTuple):
    torch: str
    env: Path  # PyTorch, the tools and the backend that is tested
    release: Path  # the release wheel, beside that PyTorch
    build: Path  # build trees, and what tests compile
    site: Path


def places(torch: str) -> Places:
    """Where a release is used; the first has the names that the pages give."""
    nox, build = ROOT / ".nox", ROOT / "build"
    if torch == current()[0]:
        site = ROOT / "book" / "_build" / "html"
        return Places(torch, nox / "shared", nox / "release", build, site)
    tree = build / f"torch-{torch}"
    return Places(
        torch,
        env=nox / f"torch-{torch}",
        release=nox / f"release-{torch}",
        build=tree,
        site=tree / "site" / "html",
    )


def asked(arguments: Sequence[str]) -> str:
    """The release that a command line names, or the first."""
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option.startswith(f"{OPTION}="):
            return option.partition("=")[2]
        if option == OPTION:
            return value
    return current()[0]


def others(arguments: Sequence[str]) -> list[str]:
    """What a command line says beside that."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and not argument.startswith(OPTION):
            kept.append(argument)
        skip = argument == OPTION
    return kept


def refusal(torch: str, arguments: Sequence[str], name: str) -> str | None:
    """Why a command cannot use a release."""
    known = current()
    if torch not in known:
        return (
            f"PyTorch {torch or '(none was named)'} is none of the releases "
            f"that the backend builds with, {', '.join(known)}: name one of "
            f"these after {OPTION}, or add yours to pyproject.toml"
        )
    records = name in ("accept", "interop") or "--record" in arguments
    if torch != known[0] and records:
        return (
            f"What the book records is what PyTorch {known[0]} does: leave "
            f"{OPTION} {torch} out"
        )
    return None
