"""The smallest backend, Python side. This module becomes `torch.tiny`.

A process has one PrivateUse1 device, so import it in one that has no other:
with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

from __future__ import annotations

# [py-smallest-imports] What the listings below import.
import sys
from pathlib import Path

import torch
from torch.utils import cpp_extension

# [/py-smallest-imports]

# [py-smallest-build] Compiled when it has changed; loading it registers it.
cpp_extension.load(
    "smallest",
    [str(Path(__file__).with_suffix(".cpp"))],
    extra_cflags=["-O1"],
    is_python_module=False,
)
# [/py-smallest-build]


# [py-smallest-module] The functions that PyTorch looks up by name.
def device_count() -> int:
    return torch.ops.tiny.device_count()


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def current_device() -> int:
    return torch.accelerator.current_device_index()


def set_device(device: int | str | torch.device) -> None:
    torch.accelerator.set_device_index(device)


def device(where: int | str | torch.device) -> torch.accelerator.device_index:
    return torch.accelerator.device_index(torch.device(where).index)


def _is_in_bad_fork() -> bool:
    return False


def manual_seed_all(seed: int) -> None:
    """The fallback draws on the host, whose generator is seeded already."""


# [/py-smallest-module]


# [py-smallest-register] The name, the module, and x.tiny().
torch.utils.rename_privateuse1_backend("tiny")
torch._register_device_module("tiny", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend()
# [/py-smallest-register]

# expect: ok
