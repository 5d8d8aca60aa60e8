"""The examples that are modules, for tests and benchmarks that use them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> Any:
    """The module of an example; a page's user runs it as a program."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))
