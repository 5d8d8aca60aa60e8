"""An exercise of the chapter Storage: segments of another process, opened once.

Two tensors may lie in one segment, and the driver refuses to open a segment
that is open. This class passes every call on. Let it open a segment for the
first tensor, count, and close it after the last one.

    nox -s tests -- backend/tests/judge.py -k segments
"""

from typing import Protocol


class Driver(Protocol):
    """What your driver has: both calls may raise."""

    def open(self, handle: bytes) -> int: ...

    def close(self, address: int) -> None: ...


class Segments:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def open(self, handle: bytes) -> int:
        """The address of the segment here, for one more tensor."""
        return self.driver.open(handle)

    def close(self, handle: bytes) -> None:
        """One tensor less; KeyError if the segment is not open."""
        raise NotImplementedError


# expect: ok
