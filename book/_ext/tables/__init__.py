"""Tables for `{generated}`: each function returns Markdown.

A table is made from the package, and from the rows of book/rows, so that a page
never repeats what the code knows. The tables of a page are in the module with
the page's name, and its rows in the file with that name.

A module that reads other files of this tree names them in READS, as patterns
below the root, so that an edit of one prints the page anew.
"""

import glob
import os
import re
from importlib import import_module
from pathlib import Path

import torch

import torch_openreg
from regions import ROOT

# What is made from the sources, and changes when they do not.
MADE = re.compile(r"/(?:__pycache__|_build)/")
IMPORTS = re.compile(r"^(?:from|import) tables\.(\w+)", re.M)


def make(name: str) -> str:
    """What `module.function argument` returns."""
    path, _, argument = name.partition(" ")
    module, _, function = path.partition(".")
    known = Path(__file__).with_name(f"{module}.py").exists()
    made_by = known and vars(import_module(f"tables.{module}")).get(function)
    if not callable(made_by):
        raise LookupError(f"book/_ext/tables/{module}.py has no {function}().")
    return str(made_by(argument) if argument else made_by())


def behind(name: str) -> set[str]:
    """The files on which `module.function argument` depends."""
    made_by, _, argument = name.partition(" ")
    found = {f"book/rows/{argument.partition('.')[0]}.toml"}
    left = {made_by.partition(".")[0]}
    while left:
        part = left.pop()
        path = Path(__file__).with_name(f"{part}.py")
        if str(path) not in found:
            found |= {str(path), f"book/rows/{part}.toml"}
            found |= {*getattr(import_module(f"tables.{part}"), "READS", ())}
            left.update(IMPORTS.findall(path.read_text("utf-8")))
    # What tables ask: PyTorch and the package, in the tree and as it was built.
    found.add(f"{Path(torch.__file__).parent}/version.py")
    for folder in torch_openreg.__path__:
        found |= {f"{folder}/**/*.py", f"{folder}/**/*.so"}
    return {
        path
        for pattern in found
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)
        if os.path.isfile(path) and not MADE.search(path)
    }
