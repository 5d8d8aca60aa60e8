"""Keeps what the tables of pages were from one print to the next.

To make one takes PyTorch, and often long. A table is made again as soon as
something changes that it was made from: the modules that it is written in,
the files and folders of this tree that were opened meanwhile, and the package.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import re
import subprocess
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

# A table's text, and when what it was made from was changed.
Made = tuple[str, dict[str, int]]
Kept = dict[tuple[str, str], Made]  # (page, table) -> what was made

# Page -> those of its tables that take longest.
LONG = {
    "chapters/operators-special": [
        "special_kinds",
        "optimizer_forms",
        "wider_dtypes",
    ],
    "reference/operators": [
        "entries_linear",
        "entries_nn",
        "entries_other",
        "entries_special",
    ],
}
SEND = "from tables import kept; kept.send()"
HELPERS: dict[str, subprocess.Popen[bytes]] = {}  # table -> who makes it
SENT: dict[str, Made] = {}


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


def make(name: str) -> Made:
    """What the function of `tables` returns, and what it was made from."""
    global making
    listen()
    making = module = module_of(name)
    try:
        function = module and getattr(importlib.import_module(module), name)
        if not callable(function):
            raise LookupError(f"tables/all.py names no function {name}.")
        text = function()
    finally:
        making = ""
    ours = written_in(module, set())
    return text, stamps({*OPENED[module], *asked(len(sys.modules)), *ours})


def table(env: BuildEnvironment, name: str) -> str:
    """What the function of `tables` returns, or has returned."""
    if (env.docname, name) not in of(env):
        of(env)[env.docname, name] = ahead(name) or make(name)
    return of(env)[env.docname, name][0]


def start(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Has a second process make what takes longest, while pages are read."""
    names = [
        name
        for page in LONG
        for name in LONG[page]
        if page in pages and (page, name) not in of(env)
    ]
    if names:
        command = [sys.executable, "-c", SEND, *names]
        path = os.pathsep.join(sys.path)
        process = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            pipesize=1 << 19,  # it need not wait until its tables are read
        )
        HELPERS.update(dict.fromkeys(names, process))


def send() -> None:
    """What the second process does: prints each table, and nothing else."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for name in sys.argv[1:]:
            print(json.dumps((name, *make(name))), file=out, flush=True)


def ahead(name: str) -> Made | None:
    """Nothing if the process failed: the same error comes here, on its page."""
    process = HELPERS.pop(name, None)
    while process and name not in SENT and (line := process.stdout.readline()):
        table, text, made_from = json.loads(line)
        SENT[table] = text, made_from
    if process and process not in HELPERS.values():
        process.communicate()  # that was its last table
    return SENT.pop(name, None)


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
