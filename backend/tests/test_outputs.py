"""Arguments and `out=`: of any strides, and on the right device."""

from __future__ import annotations

import re

import pytest
import torch

from _probes import GuardedArguments, GuardedOutputs
from torch_device_kit.conformance.database import ENTRIES, by_the_book, probe
from torch_device_kit.conformance.probes import MixedDevices, Probe


def assert_sound(
    mode: Probe, name: str, *forms: str, dtype: torch.dtype = torch.float32
) -> None:
    """Nothing of an entry is wrong, and something of it was asked."""
    with by_the_book():
        for form in forms:
            probe(mode, ENTRIES[name], dtype, form, 2)
    assert mode.faults == set()
    assert mode.asked > 0


# Entries whose CPU kernels take an `out=` for contiguous (torch 2.13).
CARELESS = [
    "log_softmax",
    "lu_unpack",
    "narrow_copy",
    "nn.functional.adaptive_max_pool3d",
    "nn.functional.avg_pool3d",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.gelu",
    "nn.functional.interpolate.bicubic",
    "nn.functional.logsigmoid",
    "nn.functional.max_pool3d",
    "nn.functional.max_unpool2d",
    "nn.functional.pad.replicate",
    "softmax",
    "tril",
    "triu",
]


@pytest.mark.proves("inside-out-strides")
@pytest.mark.parametrize("name", CARELESS)
def test_an_output_of_any_strides_gets_the_result(name: str) -> None:
    assert_sound(GuardedOutputs(), name, "forward", "gradient")


# Entries with a kernel that takes an argument for contiguous (torch 2.13).
HASTY = [
    "nn.functional.adaptive_max_pool3d",
    "nn.functional.embedding_bag",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.group_norm",
    "nn.functional.layer_norm",
]


@pytest.mark.proves("inside-argument-strides")
@pytest.mark.parametrize("name", HASTY)
def test_an_argument_of_any_strides_is_read(name: str) -> None:
    assert_sound(GuardedArguments(), name, "forward", "gradient")


def test_sizes_of_bags_are_read_by_their_stride() -> None:
    index = torch.tensor([5, 2, 1, 6, 3], device="openreg")
    offsets = torch.tensor([0, 3], device="openreg")
    mean = 1
    _, bags, sizes, largest = torch.ops.aten._embedding_bag(
        torch.ones(10, 5, device="openreg"), index, offsets, mode=mean
    )
    grads = [
        torch.ops.aten._embedding_bag_backward(
            torch.ones(2, 5, device="openreg"),
            *(index, offsets, bags, given, largest),
            *(10, False, mean, False, None),
        )
        for given in (sizes, torch.stack([sizes, sizes + 9], 1)[:, 0])
    ]
    assert torch.equal(*grads)
    assert grads[0].sum() == 10


def zeros_without_memory(*shape: int, **options: torch.dtype) -> torch.Tensor:
    return torch._efficientzerotensor(shape, device="openreg", **options)


def test_a_weight_may_be_zeros_without_memory() -> None:
    x = torch.arange(24.0, device="openreg").view(2, 4, 3)
    normalize = torch.nn.functional.group_norm
    bias = torch.arange(4.0, device="openreg")
    zeros = zeros_without_memory(4)
    for _ in range(3):
        assert normalize(x, 2, zeros, bias).equal(
            bias.view(1, 4, 1).expand(2, 4, 3)
        )
        assert normalize(x, 2, bias, zeros).equal(normalize(x, 2, bias))


def test_an_index_may_be_zeros_without_memory() -> None:
    x = torch.arange(3.0, device="openreg") + 5
    index = zeros_without_memory(2, dtype=torch.int64)
    assert x[index].tolist() == [5, 5]
    x[index] = 1
    assert x.tolist() == [1, 6, 7]


def test_an_output_of_another_shape_is_resized() -> None:
    x = torch.arange(6.0, device="openreg").view(2, 3)
    out = torch.zeros(4, 4, device="openreg").t()
    with pytest.warns(UserWarning, match="An output with one or more elements"):
        assert torch.softmax(x, 1, out=out) is out
    assert out.cpu().equal(x.cpu().softmax(1))


def test_the_stride_of_one_element_may_be_any() -> None:
    x = torch.arange(50.0, device="openreg").view(2, 1, 5, 5)
    memory = torch.full((150,), 7.0, device="openreg")
    out = memory.as_strided(x.shape, (25, 50, 5, 1))
    torch.tril(x, out=out)
    assert out.equal(x.tril())
    assert memory[50:].eq(7).all()


def test_an_output_that_overlaps_itself_is_refused() -> None:
    x = torch.arange(6.0, device="openreg").view(2, 3)
    out = torch.zeros(1, device="openreg").expand(2, 3)
    with pytest.raises(RuntimeError, match="refers to a single memory"):
        torch.softmax(x, 1, out=out)


def test_an_output_that_overlaps_an_argument_is_refused() -> None:
    for device in ("cpu", "openreg"):
        x = torch.arange(9.0, device=device).view(3, 3)
        with pytest.raises(RuntimeError, match="refer to a single memory"):
            torch.exp(x, out=x.t())
        assert torch.exp(x.t(), out=x.t()).is_set_to(x.t())


def test_numbers_are_drawn_in_the_order_of_memory() -> None:
    found = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(1)
        out = torch.zeros(8, 4, device=device).t()
        torch.bernoulli(torch.full((4, 8), 0.5, device=device), out=out)
        found.append(out.tolist())
    assert found[0] == found[1]


INDEXING = {
    "get": lambda x, index: x[index],
    "put": lambda x, index: x.index_put((index,), x[:1]),
    "put_": lambda x, index: x.index_put_((index,), x[:1]),
    "unsafe": lambda x, index: torch.ops.aten._unsafe_index(x, [index]),
}


@pytest.mark.proves("messages.indices-on-another-device")
@pytest.mark.parametrize("device", ["cpu", "openreg:1"])
@pytest.mark.parametrize("way", INDEXING)
def test_an_index_elsewhere_is_refused_as_pytorch_does(
    way: str, device: str
) -> None:
    x = torch.ones(3, device=device)
    index = torch.zeros(2, dtype=torch.int64, device="openreg")
    message = (
        "indices should be either on cpu or on the same device as the "
        f"indexed tensor ({device})"
    )
    with pytest.raises(RuntimeError, match=re.escape(message)):
        INDEXING[way](x, index)
    assert x.tolist() == [1, 1, 1]


ELSEWHERE = ["abs", "add", "softmax", "topk", "mm", "index_select", "where"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_elsewhere_is_refused(name: str, dtype: torch.dtype) -> None:
    if dtype not in ENTRIES[name].dtypes:
        dtype = torch.float64
    assert_sound(MixedDevices(), name, "forward", dtype=dtype)


def test_an_out_that_is_not_contiguous_is_resized() -> None:
    x = torch.arange(6.0).view(2, 3)
    outs = [torch.ones(4, 5, device=d).t() for d in ("openreg", "cpu")]
    for out in outs:
        with pytest.warns(UserWarning, match="was resized"):
            torch.cumsum(x.to(out.device), 0, out=out)
    ours, theirs = outs
    assert ours.stride() == theirs.stride()
    assert torch.equal(ours.cpu(), theirs)
