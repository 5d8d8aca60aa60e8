"""The tables on memory: complete, and each row leads to a test."""

import ast

import pytest

import regions
import tables

TESTS = regions.ROOT / "backend" / "tests"
DEVICE = "c10/core/CachingDeviceAllocator.h"
HOST = "ATen/core/CachingHostAllocator.h"
GENERAL = {"allocate", "raw_deleter", "copy_data"}  # of c10::Allocator


def test_every_method_of_the_device_allocator_has_one_row() -> None:
    names = [row.name for row in tables.ALLOCATOR_METHODS]
    declared = tables.methods_of(DEVICE, "DeviceAllocator")
    assert sorted(names) == sorted([*GENERAL, *declared])


def test_every_method_of_the_host_allocator_has_one_row() -> None:
    names = [row.name for row in tables.HOST_METHODS]
    declared = tables.methods_of(HOST, "HostAllocator")
    assert sorted(names) == sorted([*GENERAL - {"raw_deleter"}, *declared])


@pytest.mark.parametrize(
    "row",
    [*tables.ALLOCATOR_METHODS, *tables.HOST_METHODS, *tables.OPTIONS],
    ids=lambda row: row.name,
)
def test_a_row_names_a_test_that_exists(row: tables.AllocatorMethod) -> None:
    file, name = row.test.split("::")
    assert name in {
        node.name
        for node in ast.walk(ast.parse((TESTS / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
