"""What the modules of torch.openreg share."""

from __future__ import annotations

import torch
from torch.types import Device

from torch_openreg import _C


# [py-utils-index] Turns whatever names a device into an index.
def _get_device_index(device: Device, optional: bool = False) -> int:
    """Returns the index that `device` means.

    Args:
        device: An index, `"openreg:1"`, a `torch.device`, or None.
        optional: Whether None and `"openreg"`, which name no index, mean the
            current device.

    Raises:
        ValueError: `device` is of another type, or names no index although
            `optional` is false.
    """
    if isinstance(device, int):
        return device
    if device is not None:
        device = torch.device(device)
        if device.type != "openreg":
            raise ValueError(f"Expected an openreg device, but got: {device}")
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(
            "Expected an index or a device with an index, such as "
            f"'openreg:0', but got: {device}"
        )
    return _C._get_device()


# [/py-utils-index]
