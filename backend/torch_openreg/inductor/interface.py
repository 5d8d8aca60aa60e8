"""The device as Dynamo and Inductor see it, by the names they look for."""

from __future__ import annotations

from typing import Any

from torch._dynamo.device_interface import DeviceInterface
from torch.types import Device

from torch_openreg import _C, openreg


# [py-interface] Most methods are those of torch.openreg.
class OpenRegInterface(DeviceInterface):
    device = openreg.device
    Event = openreg.Event
    Stream = openreg.Stream
    current_device = staticmethod(openreg.current_device)
    set_device = staticmethod(openreg.set_device)
    exchange_device = staticmethod(_C._exchange_device)
    maybe_exchange_device = staticmethod(_C._maybe_exchange_device)
    device_count = staticmethod(openreg.device_count)
    is_available = staticmethod(openreg.is_available)
    stream = staticmethod(openreg.stream)
    current_stream = staticmethod(openreg.current_stream)
    set_stream = staticmethod(openreg.set_stream)
    get_raw_stream = staticmethod(_C._current_stream)
    synchronize = staticmethod(openreg.synchronize)
    is_bf16_supported = staticmethod(openreg.is_bf16_supported)
    memory_allocated = staticmethod(openreg.memory_allocated)

    class Worker:
        set_device = staticmethod(openreg.set_device)
        current_device = staticmethod(openreg.current_device)
        get_device_properties = staticmethod(openreg.get_device_properties)

    @staticmethod
    def get_compute_capability(device: Device = None) -> Any:
        return openreg.get_device_capability(device)


# [/py-interface]
