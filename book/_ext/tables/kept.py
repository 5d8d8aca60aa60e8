"""Keeps what the tables of pages were from one print to the next.

To make one takes PyTorch, and often long. A table is made again as soon as
something changes that it was made from: the modules that it is written in,
the files and folders of this tree that were opened meanwhile, and the package.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import proof
from regions import ROOT

IMPORTS = re.compile(r"^\s*(?:from|import) ([\w.]+)", re.M)
FROM = re.compile(r"^from tables\.(\w+) import (?:\(([^)]*)\)|(.*))", re.M)
OURS = re.compile(
    rf"{re.escape(str(ROOT))}(?!.*/(?:__pycache__|_build|build|\.\w+)(?:/|$))"
)
LOOKS = ("open", "os.scandir", "os.listdir")
# Module of tables -> what it has opened; what one has cached serves another.
OPENED: defaultdict[str, set[str]] = defaultdict(set)
making = ""

# (page, table) -> its text, and when what it was made from was changed.
Kept = dict[tuple[str, str], tuple[str, dict[str, int]]]


def note(event: str, args: tuple[Any, ...]) -> None:
    if making and event in LOOKS and OURS.match(str(args[0])):
        OPENED[making].add(str(args[0]))


@functools.cache
def listen() -> None:
    sys.addaudithook(note)


def module_of(name: str) -> str:
    """Where `all` has a table from, without importing PyTorch with it."""
    text = Path(__file__).with_name("all.py").read_text("utf-8")
    for module, *names in FROM.findall(text):
        if name in re.findall(r"\w+", " ".join(names)):
            return f"tables.{module}"
    return ""


def written_in(name: str, found: set[str]) -> set[str]:
    """The files of a module of book/_ext, and of those that it imports."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file and "/book/_ext/" in file and file not in found:
        found.add(file)
        for other in IMPORTS.findall(Path(file).read_text("utf-8")):
            written_in(other, found)
    return found


@functools.cache
def asked(modules: int) -> set[str]:
    """What a table may ask when so many modules are imported."""
    return set(asked_of(list(sys.modules.items())))


def asked_of(modules: list[tuple[str, Any]]) -> Iterator[str]:
    """The record of the last run, PyTorch, the package, modules of tests."""
    yield str(proof.RECORD)
    for name, module in modules:
        file = getattr(module, "__file__", None) or ""
        if name == "torch.version" or "/backend/tests/" in file:
            yield file
        elif name.partition(".")[0] == "torch_openreg":
            yield from map(str, [file, *Path(file).parent.rglob("*.so")])


def stamps(files: Iterable[str]) -> dict[str, int]:
    there = os.path.exists
    return {f: os.stat(f).st_mtime_ns if there(f) else 0 for f in files}


def of(env: BuildEnvironment) -> Kept:
    if not hasattr(env, "openreg_kept"):
        env.openreg_kept = {}
    return env.openreg_kept


def table(env: BuildEnvironment, name: str) -> str:
    """What the function of `tables` returns, or has returned."""
    global making
    if (env.docname, name) not in of(env):
        listen()
        making = module = module_of(name)
        try:
            make = module and getattr(importlib.import_module(module), name)
            if not callable(make):
                raise LookupError(f"tables/all.py names no function {name}.")
            text = make()
        finally:
            making = ""
        files = {
            *OPENED[module],
            *asked(len(sys.modules)),
            *written_in(module, set()),
        }
        of(env)[env.docname, name] = text, stamps(files)
    return of(env)[env.docname, name][0]


def outdated(
    app: Sphinx, env: BuildEnvironment, *changes: set[str]
) -> list[str]:
    """The pages of tables that are no longer kept."""
    old = [
        table for table, (_, made) in of(env).items() if stamps(made) != made
    ]
    for table in old:
        del of(env)[table]
    return [page for page, _ in old]
