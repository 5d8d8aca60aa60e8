"""What some releases of PyTorch do otherwise in the tests, with the reason.

No test asks for a version but through this file; a row of a table that only
newer releases have says `since`. An entry goes with the last release of
pyproject.toml that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import releases

FIRST, HERE = releases.current()[0], releases.installed()


def has(release: str) -> bool:
    """Whether the installed PyTorch is this release, or a later one."""
    asked, here = (tuple(map(int, text.split("."))) for text in (release, HERE))
    return here >= asked


# Warnings of PyTorch's own, which would be errors.
WARNINGS: list[str] = []
if has("2.14"):
    # torch.library.opcheck copies its arguments, and then reads .grad of the
    # copies, which are no leaves if what they are copied from needs gradients.
    WARNINGS.append("ignore:The .grad attribute of a Tensor that is not a leaf")


def adapt(items: Iterable[pytest.Item]) -> None:
    """Lets tests meet such warnings, and skips those of a record."""
    why = f"PyTorch {HERE} is installed, and what it judges is of {FIRST}"
    for item in items:
        for warning in WARNINGS:
            item.add_marker(pytest.mark.filterwarnings(warning))
        if HERE != FIRST and item.get_closest_marker("recorded"):
            item.add_marker(pytest.mark.skip(reason=why))
