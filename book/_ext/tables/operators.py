"""The tables of book/chapters/operators.md."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from tables.common import ROOT, table

READS = ("backend/tests/everyday.py",)


def minimal_rows() -> Any:
    """The rows that backend/tests/test_minimal.py proves."""
    path = ROOT / "backend" / "tests" / "everyday.py"
    spec = importlib.util.spec_from_file_location("everyday", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ROWS


# Where each operator of the minimal set is registered; names of regions.
MINIMAL_LISTINGS = {
    "empty.memory_format": "factory-empty",
    "resize_": "factory-resize",
    "set_": "factory-set-whole",
    "set_.source_Storage": "factory-set-whole",
    "set_.source_Storage_storage_offset": "factory-set",
    "set_.source_Tensor": "factory-register",
    "empty_strided": "factory-empty-strided",
    "_copy_from": "copy-from",
    "_copy_from_and_resize": "copy-from",
    "record_stream": "stream-use-record",
    "native_dropout": "random-dropout",
    "fallback": "fallback-register",
}


def minimal_set() -> str:
    """The operators that no backend can lack, and what breaks without."""
    return table(
        ("Operator", "What it is for", "Breaks without it", "With"),
        (
            (
                f"[`{row.operator}`]"
                f"(#{MINIMAL_LISTINGS.get(row.operator, 'view-register')})",
                row.purpose,
                row.breaks.replace("_", " "),
                f"`{row.says}`",
            )
            for row in minimal_rows()
        ),
    )
