"""torch.compile on the device: what Inductor asks a backend for.

Importing this package registers it; `torch.openreg` does so when Inductor asks
it for a backend, since Inductor itself takes seconds to import.
"""

from __future__ import annotations

from typing import Any, cast

from torch._dynamo.device_interface import register_interface_for_device
from torch._inductor import config as inductor_config
from torch._inductor.codegen.common import (
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen

from torch_openreg.inductor import config
from torch_openreg.inductor.graphs import GraphPolicy
from torch_openreg.inductor.interface import OpenRegInterface
from torch_openreg.inductor.operands import MoveOperands
from torch_openreg.inductor.scheduling import Scheduling
from torch_openreg.inductor.wrapper import (
    CppWrapperCodegen,
    OpOverrides,
    PythonWrapperCodegen,
)

# [py-inductor-register] Three registrations, all by the device's name.
register_interface_for_device("openreg", OpenRegInterface)
register_device_op_overrides("openreg", OpOverrides())
register_backend_for_device(
    "openreg",
    Scheduling,
    PythonWrapperCodegen,
    CppWrapperCodegen,
    WrapperFxCodegen,
    device_custom_pass=MoveOperands(),
    device_custom_config=cast(Any, config),
)
if inductor_config.cudagraph_policy is None:  # by the user
    inductor_config.cudagraph_policy = GraphPolicy()
# [/py-inductor-register]
