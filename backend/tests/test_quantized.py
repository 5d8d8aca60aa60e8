"""Quantized tensors: codes on the device, and a quantizer that goes along."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torch_openreg.openreg.testing import Gate

# PyTorch means to drop quantized tensors, and says so once a process.
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
]

DENSE = torch.arange(-12.0, 12.0).reshape(4, 6) / 3
Make = Callable[[str], Tensor]


def whole(device: str, dtype: torch.dtype = torch.qint8) -> Tensor:
    return torch.quantize_per_tensor(DENSE.to(device), 0.1, 3, dtype)


def by_row(device: str) -> Tensor:
    scales = torch.tensor([0.1, 0.2, 0.3, 0.4], device=device)
    zero_points = torch.tensor([0, 1, 2, 3], device=device)
    return torch.quantize_per_channel(
        DENSE.to(device), scales, zero_points, 0, torch.qint8
    )


def by_row_in_halves(device: str) -> Tensor:
    one, zero = torch.ones(4, device=device), torch.zeros(4, device=device)
    return torch.quantize_per_channel(
        DENSE.to(device), one, zero, 0, torch.quint4x2
    )


SCHEMES: dict[str, Make] = {"whole": whole, "by row": by_row}


def assert_same_codes(got: Tensor, expected: Tensor) -> None:
    """Codes, quantizer, shape and strides are the CPU's; the rest is ours."""
    assert got.device.type == "openreg"
    assert got.dtype == expected.dtype
    assert got.stride() == expected.stride()
    if not expected.is_quantized:
        assert torch.equal(got.cpu(), expected)
        return
    assert got.qscheme() == expected.qscheme()
    assert torch.equal(got.int_repr().cpu(), expected.int_repr())
    if expected.qscheme() == torch.per_tensor_affine:
        assert got.q_scale() == expected.q_scale()
        assert got.q_zero_point() == expected.q_zero_point()
        return
    scales, zeros = got.q_per_channel_scales(), got.q_per_channel_zero_points()
    assert scales.device == zeros.device == got.device
    assert torch.equal(scales.cpu(), expected.q_per_channel_scales())
    assert torch.equal(zeros.cpu(), expected.q_per_channel_zero_points())
    assert got.q_per_channel_axis() == expected.q_per_channel_axis()


@pytest.mark.proves("checklist.quantized", "operators_special.kinds.quantized")
@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
def test_codes_are_the_cpus(dtype: torch.dtype) -> None:
    ours = whole("openreg:1", dtype)
    assert ours.device == torch.device("openreg:1")
    assert_same_codes(ours, whole("cpu", dtype))
    assert_same_codes(ours.dequantize(), whole("cpu", dtype).dequantize())


def test_every_channel_has_a_scale_on_the_device() -> None:
    assert_same_codes(by_row("openreg"), by_row("cpu"))
    assert_same_codes(
        by_row("openreg").dequantize(), by_row("cpu").dequantize()
    )


def test_scales_may_be_computed_from_the_values() -> None:
    expected = torch.quantize_per_tensor_dynamic(DENSE, torch.quint8, False)
    device = DENSE.to("openreg")
    assert_same_codes(
        torch.quantize_per_tensor_dynamic(device, torch.quint8, False), expected
    )
    scale, zero = torch.tensor(expected.q_scale()), torch.tensor(20)
    assert_same_codes(
        torch.quantize_per_tensor(
            device, scale.to("openreg"), zero.to("openreg"), torch.quint8
        ),
        torch.quantize_per_tensor(DENSE, scale, zero, torch.quint8),
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_copies_take_the_quantizer_along(scheme: str) -> None:
    host = SCHEMES[scheme]("cpu")
    there = host.to("openreg")
    assert_same_codes(there, host)
    assert_same_codes(there.clone(), host)
    assert_same_codes(copy.deepcopy(there), host)
    assert_same_codes(there.to("openreg:1"), host)
    assert there.to("openreg:1").device.index == 1
    back = there.to("openreg:1").cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back, host)
    filled = torch.empty_like(there) if scheme == "whole" else there.clone()
    assert_same_codes(filled.copy_(host), host)


def test_a_copy_has_the_cpus_layout() -> None:
    host = whole("cpu").view(1, 2, 3, 4)
    ours = whole("openreg").view(1, 2, 3, 4)
    last = torch.channels_last
    expected = host.to("cpu", copy=True, memory_format=last)
    assert expected.stride() == (24, 1, 8, 2)
    assert_same_codes(ours.to("openreg:1", memory_format=last), expected)
    assert_same_codes(ours.to(memory_format=last), host.to(memory_format=last))
    assert_same_codes(expected.to("openreg"), expected.to("cpu", copy=True))
    turned = ours.transpose(1, 2).to("openreg:1")
    assert_same_codes(turned, host.transpose(1, 2).to("cpu", copy=True))


def test_floats_are_quantized_by_a_copy() -> None:
    for source in (DENSE * 2, (DENSE * 2).to("openreg")):
        assert_same_codes(
            whole("openreg").copy_(source),
            whole("cpu").copy_(DENSE * 2),
        )
        assert torch.equal(
            whole("cpu").copy_(source), whole("cpu").copy_(DENSE * 2)
        )


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda q: q.view(6, 4),
    "reshape": lambda q: q.reshape(-1),
    "slice": lambda q: q[1:3, ::2],
    "transpose": lambda q: q.t(),
    "select": lambda q: q[1],
    "expand": lambda q: q[:1].expand(3, 6),
    "unsqueeze": lambda q: q.unsqueeze(1),
    "unfold": lambda q: q.unfold(0, 2, 1),
    "chunk": lambda q: q.chunk(2)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_the_codes(name: str) -> None:
    host, ours = whole("cpu"), whole("openreg")
    view = VIEWS[name](ours)
    assert (
        view.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
    )
    assert_same_codes(view, VIEWS[name](host))
    # Also where its memory has gaps.
    assert view.cpu().device.type == "cpu"
    assert torch.equal(view.cpu(), VIEWS[name](host))
    assert_same_codes(VIEWS[name](host).to("openreg"), view.contiguous().cpu())


def test_what_is_written_to_a_view_is_seen() -> None:
    host, ours = whole("cpu"), whole("openreg")
    for q in (host, ours):
        q[1].fill_(2.0)
        q[2, 1:3] = -1.0
    assert_same_codes(ours, host)
    assert_same_codes(by_row("openreg")[2], by_row("cpu")[2])


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "cat": lambda q: torch.cat([q, q]),
    "index": lambda q: q[torch.tensor([0, 2], device=q.device)],
    "compare": lambda q: q > 0,
    "max": torch.max,
    "topk": lambda q: q.topk(2).values,
    "mean": lambda q: q.mean(1),
    "max_pool": lambda q: nn.functional.max_pool2d(q[None], 2),
    "interpolate": lambda q: nn.functional.interpolate(q[None, None], size=9),
    "add": lambda q: torch.ops.quantized.add(q, q, 0.2, 3),
    "mul": lambda q: torch.ops.quantized.mul(q, q, 0.2, 3),
    "matmul": lambda q: torch.ops.quantized.matmul(
        q, q.t().contiguous(), 0.2, 3
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_the_cpus(name: str) -> None:
    with torch.openreg.fallback.forbid():
        assert_same_codes(
            OPERATORS[name](whole("openreg")), OPERATORS[name](whole("cpu"))
        )


def linear(device: str, x: Tensor) -> Tensor:
    weight = torch.quantize_per_channel(
        torch.eye(6, device=device),
        torch.full((6,), 0.1, device=device),
        torch.zeros(6, dtype=torch.int64, device=device),
        0,
        torch.qint8,
    )
    bias = torch.arange(6.0, device=device)
    packed = torch.ops.quantized.linear_prepack(weight, bias)
    # What was packed is gone before it is used, and its memory used again.
    del weight, bias
    torch.full((64,), 77.0, device=device)
    if x.is_quantized:
        return torch.ops.quantized.linear_relu(x, packed, 0.1, 5)
    return torch.ops.quantized.linear_dynamic(x, packed, False)


def test_a_packed_weight_owns_its_memory() -> None:
    ours = linear("openreg", whole("openreg", torch.quint8))
    assert_same_codes(ours, linear("cpu", whole("cpu", torch.quint8)))
    assert_same_codes(
        linear("openreg", DENSE.to("openreg")), linear("cpu", DENSE)
    )


def convolution(device: str) -> Tensor:
    image = torch.arange(192.0, device=device).view(1, 3, 8, 8) / 200
    weight = torch.arange(108.0, device=device).view(4, 3, 3, 3) / 100
    packed = torch.ops.quantized.conv2d_prepack(
        torch.quantize_per_tensor(weight, 0.01, 0, torch.qint8),
        torch.ones(4, device=device),
        [1, 1],
        [1, 1],
        [1, 1],
        1,
    )
    quantized = torch.quantize_per_tensor(image, 0.01, 0, torch.quint8)
    return torch.ops.quantized.conv2d(quantized, packed, 0.2, 0)


def test_convolution_keeps_the_cpus_layout() -> None:
    assert_same_codes(convolution("openreg"), convolution("cpu"))


def test_a_dynamically_quantized_model_takes_device_tensors() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    with torch.no_grad(), torch.openreg.fallback.forbid():
        assert_same_codes(small(DENSE.to("openreg")), small(DENSE))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_saved_and_loaded(scheme: str, tmp_path) -> None:
    host = SCHEMES[scheme]("cpu")
    torch.save(SCHEMES[scheme]("openreg"), tmp_path / "q.pt")
    assert_same_codes(torch.load(tmp_path / "q.pt"), host)
    loaded = torch.load(tmp_path / "q.pt", map_location="cpu")
    assert torch.equal(loaded, host)


def test_it_prints_what_the_cpu_prints() -> None:
    text = repr(whole("openreg"))
    assert "device='openreg:0'" in text
    assert "scale=0.1, zero_point=3" in text
    assert "dtype=torch.qint8" in text


def test_tensors_of_two_devices_are_refused() -> None:
    for other in ("cpu", "openreg:1"):
        with pytest.raises(RuntimeError, match="on the same device"):
            torch.ops.quantized.add(whole("openreg"), whole(other), 0.1, 0)
    assert_same_codes(torch.relu(whole("openreg")), torch.relu(whole("cpu")))


def error(call: Callable[[str], object], device: str) -> str:
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        call(device)
    return str(raised.value).split(". This could be")[0]


REFUSED: dict[str, Callable[[str], object]] = {
    "of integers": lambda d: torch.quantize_per_tensor(
        torch.arange(3, device=d), 0.1, 0, torch.quint8
    ),
    "to a float dtype": lambda d: torch.quantize_per_tensor(
        DENSE.to(d), 0.1, 0, torch.float32
    ),
    "zero point": lambda d: torch.quantize_per_tensor(
        DENSE.to(d), 0.1, 1000, torch.quint8
    ),
    "view of channels": lambda d: by_row(d).view(6, 4).dequantize(),
    "float by a copy": lambda d: DENSE.clone().to(d).copy_(whole(d)),
    "float by to": lambda d: whole(d).to(torch.float32),
    "float plus codes": lambda d: whole(d) + DENSE.to(d),
    "another scheme": lambda d: by_row(d).copy_(whole(d)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_the_cpus(name: str) -> None:
    assert error(REFUSED[name], "openreg") == error(REFUSED[name], "cpu")
    assert_same_codes(whole("openreg"), whole("cpu"))


def test_an_operator_without_codes_is_named() -> None:
    text = error(lambda d: whole(d).sin(), "openreg")
    assert "Could not run 'aten::sin.out'" in text
    assert "'Quantizedopenreg' backend" in text


def test_codes_are_not_viewed_as_another_dtype() -> None:
    # On the CPU this is a view without a quantizer, and printing it crashes.
    q = whole("openreg")
    assert_same_codes(q.view(torch.qint8), whole("cpu"))
    with pytest.raises(NotImplementedError, match=r"int_repr\(\) gives"):
        q.view(torch.int8)


@pytest.mark.queued
@pytest.mark.parametrize("kind", ["quantized", "nested"])
def test_memory_that_another_stream_uses_is_not_reused(kind: str) -> None:
    side, gate = torch.openreg.Stream(), Gate()
    x = (
        by_row("openreg")
        if kind == "quantized"
        else torch.nested.nested_tensor([DENSE], device="openreg")
    )
    size, address = x.untyped_storage().nbytes(), x.untyped_storage().data_ptr()
    with side:
        gate.hold()
    x.record_stream(side)
    del x
    other = torch.empty(size, dtype=torch.uint8, device="openreg")
    gate.open()
    side.synchronize()
    assert other.data_ptr() != address


@pytest.mark.proves("messages.only-works-with")
def test_a_copy_between_dtypes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="only works with the same dtype"):
        whole("cpu").copy_(whole("openreg", torch.quint8))


@pytest.mark.proves("messages.its-elements-share")
def test_codes_that_share_a_byte_are_copied_as_a_whole() -> None:
    ours, host = by_row_in_halves("openreg"), by_row_in_halves("cpu")
    assert ours.untyped_storage().nbytes() == DENSE.numel() / 2
    assert torch.equal(ours.int_repr().cpu(), host.int_repr())
    assert torch.equal(ours.cpu().int_repr(), host.int_repr())
    assert torch.equal(host.to("openreg").int_repr().cpu(), host.int_repr())
    with pytest.raises(NotImplementedError, match="its elements share bytes"):
        ours[1].cpu()


def test_memory_of_the_codes_goes_back() -> None:
    before = torch.openreg.memory_allocated()
    q = by_row("openreg")
    assert torch.openreg.memory_allocated() > before
    r = torch.relu(whole("openreg"))[1].clone()
    del q, r
    assert torch.openreg.memory_allocated() == before
