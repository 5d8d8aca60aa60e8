from typing import Any

import torch


# [py-device-context-solution] An object may be entered again inside itself.
class device:
    def __init__(self, where: Any) -> None:
        if not isinstance(where, int):
            where = torch.device(where)
            if where.type != "openreg":
                raise ValueError(f"Expected an openreg device, got {where}")
            where = where.index
        self.index: int | None = where
        self.previous: list[int] = []

    def __enter__(self) -> None:
        self.previous.append(torch.accelerator.current_device_index())
        if self.index is not None:
            torch.accelerator.set_device_index(self.index)

    def __exit__(self, *error: object) -> None:
        torch.accelerator.set_device_index(self.previous.pop())


# [/py-device-context-solution]

# expect: ok
