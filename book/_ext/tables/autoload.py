"""The tables of book/chapters/autoload.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


class Import(NamedTuple):
    program: str
    happens: str
    test: str  # file::function in backend/tests


IMPORTS = [
    Import(
        "`import torch`",
        "torch imports the package, which finds torch all but complete, and "
        "registers the device.",
        "test_autoload.py"
        "::test_import_torch_is_enough_and_later_imports_change_nothing",
    ),
    Import(
        "`import torch_openreg`",
        "The package imports torch; torch comes back for `_autoload`, while "
        "the package is half done; then the package registers the device.",
        "test_autoload.py"
        "::test_the_package_can_be_imported_first_and_by_many_threads",
    ),
    Import(
        "`import torch`, then `import torch_openreg`",
        "The second import finds a finished module and does nothing.",
        "test_autoload.py"
        "::test_import_torch_is_enough_and_later_imports_change_nothing",
    ),
    Import(
        "either, with autoload off",
        "The package registers the device when it is imported, and only then.",
        "test_autoload.py::test_switched_off_it_can_be_imported_by_hand",
    ),
    Import(
        "either, in eight threads at once",
        "Python's import lock lets one thread do it and the others wait.",
        "test_autoload.py"
        "::test_the_package_can_be_imported_first_and_by_many_threads",
    ),
    Import(
        "`import torch` in a spawned child",
        "A fresh interpreter, which loads the backend for itself.",
        "test_autoload.py::test_a_spawned_child_uses_the_devices",
    ),
    Import(
        "nothing, in a child forked after use",
        "The registration is inherited, the right to use the devices is not: "
        "an error says to spawn.",
        "test_runtime.py::test_a_child_forked_after_use_is_told_to_spawn",
    ),
]


def imports() -> str:
    """Who may import what first, and in which process."""
    return table(
        ("The program writes", "What happens", "Test"),
        (
            (row.program, row.happens, f"`{row.test}`{{.said}}")
            for row in IMPORTS
        ),
    )
