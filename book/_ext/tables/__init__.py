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
from importlib.util import find_spec
from pathlib import Path

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
    return made_by(argument) if argument else made_by()


def behind(name: str) -> set[str]:
    """Patterns of the files on which `module.function argument` depends."""
    path, _, argument = name.partition(" ")
    found = {f"book/rows/{argument.partition('.')[0]}.toml"}
    left = {path.partition(".")[0]}
    while left:
        part = left.pop()
        module = import_module(f"tables.{part}")
        path = Path(module.__file__)
        if str(path) not in found:
            found |= {str(path), f"book/rows/{part}.toml"}
            found |= {*getattr(module, "READS", ())}
            left.update(IMPORTS.findall(path.read_text("utf-8")))
    # What tables ask, found without importing it: PyTorch and the package,
    # in the tree and as it was built.
    torch, package = map(find_spec, ("torch", "torch_openreg"))
    found.add(str(Path(torch.origin).with_name("version.py")))
    for folder in package.submodule_search_locations:
        found |= {f"{folder}/**/*.py", f"{folder}/**/*.so"}
    return found


def stamps(patterns: set[str]) -> dict[str, int]:
    """When each file that a pattern names was changed."""
    return {
        path: os.stat(path).st_mtime_ns
        for pattern in patterns
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)
        if os.path.isfile(path) and not MADE.search(path)
    }
