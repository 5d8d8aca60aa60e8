"""What tests of pending work share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.openreg.testing import Gate


@pytest.fixture
def hold() -> Iterator[Callable[..., Gate]]:
    """Holds a stream back, by default the current one, until its gate opens.

    A test that fails must not leave a gate closed: nothing would end.
    """
    gates = []

    def close(stream: torch.Stream | None = None) -> Gate:
        gates.append(Gate())
        gates[-1].hold(stream)
        return gates[-1]

    yield close
    for gate in gates:
        gate.open()


@pytest.fixture
def side() -> Iterator[torch.openreg.Stream]:
    """A stream that is not the default one, and current in the test."""
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        yield stream
