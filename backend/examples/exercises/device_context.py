"""An exercise of the chapter The device module: `with torch.acme.device(1):`.

The class makes a device current, here one of openreg, and then device 0.

    nox -s tests -- backend/tests/judge.py -k device_context
"""

from typing import Any

import torch


class device:
    """An index, or what a device is written as: "openreg:1", "openreg"."""

    def __init__(self, where: Any) -> None:
        self.index = where

    def __enter__(self) -> None:
        torch.accelerator.set_device_index(self.index)

    def __exit__(self, *error: object) -> None:
        torch.accelerator.set_device_index(0)


# expect: ok
