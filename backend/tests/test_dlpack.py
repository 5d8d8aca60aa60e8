"""DLPack: what PyTorch lets a backend's tensors do, and where it stops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

from _tensors import ascending

CAPSULES = {
    "to_dlpack": to_dlpack,
    "__dlpack__": lambda x: x.__dlpack__(),
    "versioned": lambda x: x.__dlpack__(max_version=(1, 0)),
}


@pytest.mark.proves("storage.dlpack.capsule")
@pytest.mark.parametrize("capsule", CAPSULES.values(), ids=CAPSULES)
@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
def test_a_capsule_is_the_same_memory(capsule, device: str) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    y = from_dlpack(capsule(x.t()))
    assert (str(y.device), y.stride(), y.tolist()) == (
        device,
        (1, 3),
        x.t().tolist(),
    )
    y.add_(1)
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert y.data_ptr() == x.data_ptr()


def test_a_capsule_keeps_its_memory() -> None:
    x = ascending(1000)
    address = x.data_ptr()
    capsule = to_dlpack(x)
    del x
    assert torch.zeros(1000, device="openreg").data_ptr() != address
    assert from_dlpack(capsule).sum().item() == 499500
    del capsule
    assert torch.zeros(1000, device="openreg").data_ptr() == address


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.float16, torch.bfloat16]
)
def test_a_capsule_keeps_the_dtype(dtype: torch.dtype) -> None:
    x = ascending(3).to(dtype)
    y = from_dlpack(to_dlpack(x))
    assert (y.dtype, y.tolist()) == (dtype, x.tolist())


@pytest.mark.proves("storage.dlpack.host_array")
@pytest.mark.parametrize("index", [0, 1])
def test_a_host_array_is_copied_to_the_device(index: int) -> None:
    array = np.arange(3.0)
    for source in (array, torch.from_numpy(array)):
        x = torch.from_dlpack(source, device=f"openreg:{index}")
        assert (str(x.device), x.tolist()) == (f"openreg:{index}", [0, 1, 2])
        x.zero_()
    assert array.tolist() == [0, 1, 2]


def test_a_host_array_is_not_shared_with_the_device() -> None:
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(np.arange(3.0), device="openreg", copy=False)


@pytest.mark.proves("storage.dlpack.to_host")
def test_a_capsule_for_the_host_is_a_copy() -> None:
    x = ascending(3)
    capsule = x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0))
    y = from_dlpack(capsule)
    assert (str(y.device), y.tolist()) == ("cpu", [0, 1, 2])
    y.zero_()
    assert x.tolist() == [0, 1, 2]


UNKNOWN = "Unknown device type openreg for Dlpack"


@pytest.mark.proves("storage.dlpack.device")
def test_pytorch_does_not_say_the_device_of_a_tensor() -> None:
    x = ascending(3)
    for ask in (
        x.__dlpack_device__,
        lambda: torch.from_dlpack(x),
        lambda: torch.from_dlpack(x, device="cpu"),
    ):
        with pytest.raises(ValueError, match=UNKNOWN):
            ask()
    # Although it knows how to say it, and to read it.
    said = torch._C._torchDeviceToDLDevice(torch.device("openreg:1"))
    assert said == (DLDeviceType.kDLExtDev, 1)


class Exporter:
    """What a tensor should say, said for it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return torch._C._torchDeviceToDLDevice(self.tensor.device)


def test_an_object_that_says_its_device_is_taken() -> None:
    x = ascending(3, device="openreg:1")
    y = torch.from_dlpack(Exporter(x))
    y.add_(1)
    assert (y.device, x.tolist()) == (x.device, [1, 2, 3])
    z = torch.from_dlpack(Exporter(x), copy=True)
    assert z.data_ptr() != x.data_ptr()
    assert torch.from_dlpack(Exporter(x), device="cpu").tolist() == [1, 2, 3]


@pytest.mark.proves("storage.dlpack.numpy")
def test_a_library_without_the_device_takes_nothing() -> None:
    x = ascending(3)
    with pytest.raises(RuntimeError, match="Unsupported device in DLTensor"):
        np.from_dlpack(Exporter(x))
    assert x.tolist() == [0, 1, 2]


def test_what_a_capsule_cannot_say_is_refused() -> None:
    with pytest.raises(BufferError, match="require gradient"):
        ascending(2).requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="conjugate bit"):
        (ascending(2) * 1j).conj().__dlpack__()
