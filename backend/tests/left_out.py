"""The smallest backend, each time without one line of it.

A program: its arguments are Python that uses the device and, one by one, the
lines to leave out; without arguments, it reads a JSON list of such trials from
its standard input. Every trial has a process of its own, forked from one that
has imported PyTorch and loaded no backend.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import types
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils import cpp_extension

sys.path.append(str(Path(__file__).parents[1] / "kit"))
from torch_device_kit import answers

FOLDER = Path(__file__).parents[1] / "examples" / "smallest"


# Leaves out the backend itself.
IMPORT = "import smallest"


class Trial(NamedTuple):
    leaves_out: str  # a part of the line, or IMPORT; nothing leaves all in
    use: str  # the value of its last line is the answer


# What the line's registration asks before it is made.
SWITCH = """
#include <cstdlib>
#include <cstring>

static bool kept(const char* line) {
  const char* const left_out = std::getenv("LEFT_OUT");
  return left_out == nullptr || std::strstr(line, left_out) == nullptr;
}

"""
BLOCK = re.compile(r"TORCH_LIBRARY\w*\((.*), library\)")
STATEMENT = re.compile(r"^  (library\.|c10::|at::)")


def switched(source: str) -> tuple[str, list[str]]:
    """The C++ side with a switch before each registration; their names."""
    lines, names, block = [], [], ""
    at_register = False
    for line in source.splitlines():
        if "[smallest-register]" in line:
            at_register = True
        if found := BLOCK.match(line):
            block = f"{found[1]}: "
        if at_register and STATEMENT.match(line):
            names.append(block + line.strip())
            line = f"  if (kept({json.dumps(names[-1])}))\n  {line}"
        lines.append(line)
    return SWITCH + "\n".join(lines) + "\n", names


def without(source: str, left_out: str) -> str:
    """The Python side without the statement that contains the text."""
    tree = ast.parse(source)
    tree.body = [
        node
        for node in tree.body
        if not left_out
        or left_out not in (ast.get_source_segment(source, node) or "")
    ]
    return ast.unparse(tree)


def answer(code: str, names: dict[str, object]) -> str:
    """What `code` raises, else first warns of, else the last line's value."""
    return answers.ask(code, names).text


def build() -> str:
    """The library with switches; its path."""
    name = "smallest_switched"
    folder = Path(cpp_extension._get_build_directory(name, False))
    path = folder / "smallest_switched.cpp"
    text = switched((FOLDER / "smallest.cpp").read_text())[0]
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    library: str = cpp_extension.load(
        name,
        [str(path)],
        extra_cflags=["-O0"],
        is_python_module=False,
    )
    return library


def attempt(library: str, trial: Trial) -> str:
    """What comes of a trial in this process."""
    if trial.leaves_out == IMPORT:
        return answer(trial.use, {"torch": torch})
    if trial.leaves_out:
        os.environ["LEFT_OUT"] = trial.leaves_out
    cpp_extension.load = lambda *_, **__: torch.ops.load_library(library)
    source = (FOLDER / "smallest.py").read_text()
    module = types.ModuleType("smallest")
    module.__file__ = str(FOLDER / "smallest.py")
    sys.modules["smallest"] = module
    try:
        exec(without(source, trial.leaves_out), module.__dict__)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return answer(trial.use, {"torch": torch})


# What takes seconds to import is imported once, after the other trials.
SLOW = "torch._dynamo", "torch._inductor", "common_device_type", "profiler"


def make(trials: list[Trial]) -> list[str]:
    """What came of each trial, in their order."""
    library = answers.forked(build)
    found: dict[Trial, str] = {}
    slow = {t for t in trials if any(name in t.use for name in SLOW)}
    for trial in [t for t in trials if t not in slow]:
        found[trial] = answers.forked(attempt, library, trial)
    if slow:
        import torch._inductor.compile_fx  # noqa: F401
    for trial in [t for t in trials if t in slow]:
        found[trial] = answers.forked(attempt, library, trial)
    return [found[trial] for trial in trials]


if __name__ == "__main__":
    if sys.argv[1:]:
        use, *lines = sys.argv[1:]
        for line, said in zip(
            lines, make([Trial(x, use) for x in lines]), strict=True
        ):
            print(f"{line or 'nothing'}: {said}")
    else:
        trials = [Trial(*trial) for trial in json.load(sys.stdin)]
        print(json.dumps(make(trials)))
