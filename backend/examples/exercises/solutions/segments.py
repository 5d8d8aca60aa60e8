from typing import Protocol


class Driver(Protocol):
    def open(self, handle: bytes) -> int: ...

    def close(self, address: int) -> None: ...


# [py-segments-solution] What the driver refuses leaves no count behind.
class Segments:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.opened: dict[bytes, int] = {}
        self.users: dict[bytes, int] = {}

    def open(self, handle: bytes) -> int:
        if handle not in self.opened:
            self.opened[handle] = self.driver.open(handle)
            self.users[handle] = 0
        self.users[handle] += 1
        return self.opened[handle]

    def close(self, handle: bytes) -> None:
        self.users[handle] -= 1
        if self.users[handle] == 0:
            del self.users[handle]
            self.driver.close(self.opened.pop(handle))


# [/py-segments-solution]

# expect: ok
