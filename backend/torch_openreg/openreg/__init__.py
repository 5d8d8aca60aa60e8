"""torch.openreg: the devices, seen from Python.

The names are those of torch.cuda. Much of PyTorch looks them up by name on the
module of whatever device a tensor is on, which is why they must be these.
"""

from __future__ import annotations

import importlib

import torch

from torch_openreg.openreg import profiler  # noqa: F401
from torch_openreg.openreg._lazy import *  # noqa: F403
from torch_openreg.openreg.amp import *  # noqa: F403
from torch_openreg.openreg.calls import *  # noqa: F403
from torch_openreg.openreg.devices import *  # noqa: F403
from torch_openreg.openreg.memory import *  # noqa: F403
from torch_openreg.openreg.random import *  # noqa: F403
from torch_openreg.openreg.sharing import *  # noqa: F403
from torch_openreg.openreg.streams import *  # noqa: F403
from torch_openreg.openreg.tensor_types import *  # noqa: F403

OutOfMemoryError = torch.OutOfMemoryError

# PyTorch reads these two here; `_lazy_init` sets them.
_initialized = False
default_generators: tuple[torch.Generator, ...] = ()
"""The default generator of each device; empty until the backend is in use."""


# [py-init-inductor] Inductor first looks for this name in the device module.
def __getattr__(name: str) -> object:
    if name == "Scheduling":
        # It registers itself, with more than Inductor would find here by name.
        importlib.import_module("torch_openreg.inductor")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# [/py-init-inductor]
