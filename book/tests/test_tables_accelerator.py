"""The table of torch.accelerator: complete, and each row's test uses it."""

import ast

import pytest
import torch

import regions
from tables import accelerator, memory, virtuals

TESTS = regions.ROOT / "backend" / "tests"


def test_every_public_name_has_a_row() -> None:
    assert set(accelerator.ACCELERATOR_NAMES) == set(torch.accelerator.__all__)
    rows = accelerator.accelerator_names().splitlines()[2:]
    assert len(rows) == len(torch.accelerator.__all__)


@pytest.mark.parametrize("name", accelerator.ACCELERATOR_NAMES)
def test_every_name_has_a_test_that_uses_it(name: str) -> None:
    file, function = accelerator.ACCELERATOR_NAMES[name].test.split("::")
    tree = ast.parse((TESTS / file).read_text())
    (test,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    helpers = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and f"{node.name}(" in ast.unparse(test)
    ]
    code = "\n".join(map(ast.unparse, [test, *helpers]))
    assert f".{name}(" in code


METHODS = {
    "the guard: ": set(virtuals.methods("guard")),
    "the device's allocator: ": {row.name for row in memory.ALLOCATOR_METHODS},
}


@pytest.mark.parametrize("name", accelerator.ACCELERATOR_NAMES)
def test_a_method_that_is_named_is_one_of_the_interface(name: str) -> None:
    answer = accelerator.ACCELERATOR_NAMES[name].answered_by
    for part, methods in METHODS.items():
        if answer.startswith(part):
            assert set(answer.split("`")[1::2]) <= methods
