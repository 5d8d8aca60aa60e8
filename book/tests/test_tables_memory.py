"""The tables on memory: complete, and each row leads to a test."""

import ast
import re
from pathlib import Path

import pytest
import torch

import regions
from tables import memory

TESTS = regions.ROOT / "backend" / "tests"
DEVICE = "c10/core/CachingDeviceAllocator.h"


@pytest.mark.parametrize("row", memory.OPTIONS, ids=lambda row: row.name)
def test_a_row_names_a_test_that_exists(
    row: memory.AllocatorMethod,
) -> None:
    file, name = row.test.split("::")
    assert name in {
        node.name
        for node in ast.walk(ast.parse((TESTS / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def test_every_field_of_the_statistics_has_one_row() -> None:
    text = (Path(torch.__file__).parent / "include" / DEVICE).read_text()
    body = text.split("struct DeviceStats {")[1].split("\n};")[0]
    declared = re.findall(r"(\w+)(?: = 0)?;", re.sub(r"//.*", "", body))
    assert sorted(memory.DEVICE_STATS) == sorted(declared)


def test_every_key_of_the_statistics_is_in_a_row() -> None:
    stats = torch.accelerator.memory_stats()
    rows = {k for row in memory.DEVICE_STATS.values() for k in row.keys}
    assert rows <= set(stats)
    assert {key.split(".")[0] for key in stats} == {
        key.split(".")[0] for key in rows
    }
