"""The fallback's tables: each row's test exists and speaks of its message."""

import ast

import pytest

import regions
from tables import fallback

TESTS = regions.ROOT / "backend" / "tests" / "test_fallback.py"


def body(test: str) -> str:
    """The source of `Class::function`."""
    text = TESTS.read_text()
    owner, name = test.split("::")
    (found,) = (
        function
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == owner
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == name
    )
    lines = [found.lineno, *(mark.lineno for mark in found.decorator_list)]
    return "\n".join(text.splitlines()[min(lines) - 1 : found.end_lineno])


@pytest.mark.parametrize(
    "row", fallback.FALLBACK_ARGUMENTS, ids=lambda row: row.what
)
def test_a_kind_of_argument_has_its_test(row: fallback.Argument) -> None:
    assert "ops()" in body(row.test)
    assert f"`{row.test}`" in fallback.fallback_arguments()


@pytest.mark.parametrize(
    "row", fallback.FALLBACK_REFUSALS, ids=lambda row: row.what
)
def test_a_refusal_has_its_message_from_its_test(
    row: fallback.Refusal,
) -> None:
    test = body(row.test)
    assert "pytest.raises(" in test or "says" in test
    assert row.says in test.replace("\\", "")
    assert f"`{row.says}`" in fallback.fallback_refusals()
