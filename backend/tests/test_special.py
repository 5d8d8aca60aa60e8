"""Unusual tensors: lazy bits, no elements, channels last, odd dtypes.

Whatever the CPU does with them, values, strides and refusals are the same here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from _tensors import ascending

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]


def describe(value: object) -> object:
    if isinstance(value, Tensor):
        bits = (value.is_conj(), value.is_neg())
        form = (value.dtype, tuple(value.shape), value.stride(), *bits)
        return (*form, value.detach().cpu().resolve_conj().resolve_neg())
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    return value


def outcome(call: Callable[[str], object], device: str) -> object:
    """What a call gives, or the error that it raises."""
    torch.manual_seed(0)
    try:
        return describe(call(device))
    except (RuntimeError, NotImplementedError, IndexError, ValueError) as error:
        # The CPU names its kernel and itself, the device the operator.
        text = re.sub(
            r"^(\"\w+\"|openreg: '\S+' is) (?=not imp)", "", str(error)
        )
        return type(error), re.sub(" on (openreg:0|CPU)$", "", text)


def compare(call: Callable[[str], object]) -> None:
    expected, got = outcome(call, "cpu"), outcome(call, "openreg")
    torch.accelerator.synchronize()  # nothing that was queued has failed
    check(got, expected)


def check(got: object, expected: object) -> None:
    if isinstance(expected, Tensor):
        torch.testing.assert_close(got, expected, equal_nan=True)
    elif isinstance(expected, (list, tuple)):
        assert isinstance(got, (list, tuple))
        assert len(got) == len(expected), (got, expected)
        for one, other in zip(got, expected, strict=True):
            check(one, other)
    else:
        assert got == expected


REAL = torch.arange(12.0).view(3, 4)


def z(device: str) -> Tensor:
    return torch.complex(REAL, REAL - 5).to(device)


def written(change: Callable[[Tensor], object]) -> Callable[[str], object]:
    def call(device: str) -> Tensor:
        base = z(device)
        change(base)
        return base

    return call


COMPLEX: dict[str, Callable[[str], object]] = {
    "conj": lambda d: z(d).conj(),
    "conj add": lambda d: z(d).conj() + z(d),
    "adjoint product": lambda d: z(d) @ z(d).mH,
    "conj product": lambda d: torch.bmm(z(d)[None].conj(), z(d).t()[None]),
    "addmm": lambda d: torch.addmm(z(d)[:, :3].conj(), z(d).conj(), z(d).t()),
    "linear": lambda d: F.linear(z(d), z(d).conj()),
    "vdot": lambda d: torch.vdot(z(d)[0], z(d)[1]),
    "abs": lambda d: z(d).conj().abs(),
    "imag": lambda d: z(d).conj().imag,
    "resolved": lambda d: (z(d).conj().resolve_conj(), z(d).conj().clone()),
    "strided": lambda d: z(d).t().conj().contiguous(),
    "cat": lambda d: torch.cat([z(d).conj(), z(d)]),
    "sum": lambda d: z(d).conj().sum(0),
    "cumsum": lambda d: z(d).conj().cumsum(0),
    "index": lambda d: z(d).conj()[torch.tensor([0, 2], device=d)],
    "where": lambda d: torch.where(z(d).abs() > 2, z(d).conj(), z(d)),
    "fft": lambda d: torch.fft.fft(z(d).conj()),
    "convert": lambda d: z(d).conj().to(torch.complex128),
    "half": lambda d: z(d).conj().imag.half(),
    "item": lambda d: (z(d).conj()[0, 1].item(), z(d).conj().imag[1, 1].item()),
    "out": lambda d: torch.add(z(d), 1, out=torch.empty_like(z(d)).conj()),
    "out neg": lambda d: torch.add(
        z(d).real, 1, out=torch.zeros_like(z(d)).conj().imag
    ),
    "compare": lambda d: z(d) < z(d),
    "sort": lambda d: z(d).sort(),
    "in place": written(lambda b: b.conj().add_(1).mul_(1j)),
    "in place neg": written(lambda b: b.conj().imag.mul_(2)),
    "parts": written(lambda b: (b.imag.fill_(3), b.real.zero_())),
    "copy into": written(lambda b: b.conj().copy_(b.clone())),
    "copy neg": written(lambda b: b.conj().imag.copy_(REAL.to(b.device))),
    "item into": written(lambda b: operator.setitem(b.conj(), 0, 1j)),
    "from the host": written(lambda b: b.conj().copy_(b.cpu())),
}


@pytest.mark.proves(
    "checklist.conjugate",
    "checklist.negative",
    "operators_special.kinds.conjugate",
)
@pytest.mark.parametrize("name", COMPLEX)
def test_conjugate_and_negative_views_are_the_cpus(name: str) -> None:
    compare(COMPLEX[name])


@pytest.mark.proves("special-lazy-bits")
def test_lazy_bits_survive_a_copy_to_another_device() -> None:
    for view in (z("openreg").conj(), z("openreg").conj().imag):
        moved = view.to("openreg:1")
        assert moved.device.index == 1
        expected = view.cpu().resolve_conj().resolve_neg()
        assert torch.equal(moved.cpu().resolve_conj().resolve_neg(), expected)


FEW: dict[str, Callable[[Tensor], object]] = {
    "add": lambda x: x + x,
    "number": lambda x: x * 2.5,
    "promoted": lambda x: x.int() + torch.tensor(0.5),
    "relu": torch.relu,
    "sum": torch.sum,
    "sum of a row": lambda x: x.sum(-1, keepdim=True),
    "mean": torch.mean,
    "max": torch.max,
    "max of a row": lambda x: x.max(-1),
    "argmax": torch.argmax,
    "softmax": lambda x: torch.softmax(x, -1),
    "cumsum": lambda x: x.cumsum(0),
    "sort": torch.sort,
    "topk": lambda x: x.topk(0),
    "cat": lambda x: torch.cat([x, x]),
    "gather": lambda x: x.gather(0, torch.zeros_like(x).long()),
    "index_select": lambda x: x.index_select(
        0, torch.zeros(0, dtype=torch.int64, device=x.device)
    ),
    "mask": lambda x: x[x > 5],
    "nonzero": torch.nonzero,
    "unique": torch.unique,
    "mm": lambda x: torch.mm(x, x.t()),
    "addmm": lambda x: torch.addmm(x.sum(), x, x.t(), beta=0.5),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "linear": lambda x: F.linear(x, x),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "embedding": lambda x: F.embedding(
        x.long(), torch.ones(9, 2, device=x.device)
    ),
    "conv": lambda x: F.conv1d(x, torch.ones(2, 3, 1, device=x.device)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "dropout": lambda x: F.dropout(x, 0.5),
    "item": lambda x: x.item(),
    "out": lambda x: torch.exp(x, out=torch.empty(0, device=x.device)),
    "gradient": lambda x: torch.autograd.grad(
        (y := x.clone().requires_grad_()).square().sum(), y
    ),
}


@pytest.mark.proves("operators_special.kinds.empty")
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0), (2, 3, 0)])
def test_few_or_no_elements(name: str, shape: tuple[int, ...]) -> None:
    compare(lambda d: FEW[name](ascending(*shape, device=d, first=1.0)))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(4, 2, 3, padding=1),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "transposed conv": lambda: nn.ConvTranspose2d(4, 2, 2),
    "batch norm": lambda: nn.BatchNorm2d(4),
    "max pool": lambda: nn.MaxPool2d(2),
    "average pool": lambda: nn.AvgPool2d(2),
    "adaptive pool": lambda: nn.AdaptiveAvgPool2d(1),
    "upsample": lambda: nn.Upsample(scale_factor=2),
    "relu": nn.ReLU,
    "block": lambda: nn.Sequential(
        nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)
    ),
}
FORMATS = [torch.channels_last, torch.contiguous_format]


def image(device: str, memory_format: torch.memory_format) -> Tensor:
    pixels = torch.arange(2.0 * 4 * 6 * 6).view(2, 4, 6, 6) / 100 - 1
    return pixels.to(device).contiguous(memory_format=memory_format)


@pytest.mark.proves("operators_special.kinds.channels_last")
@pytest.mark.parametrize("of_module", FORMATS, ids=str)
@pytest.mark.parametrize("of_input", FORMATS, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_layouts_of_images_follow_the_cpus(name, of_module, of_input) -> None:
    def train(device: str) -> list[Tensor | None]:
        module = MODULES[name]().to(device).to(memory_format=of_module)
        x = image(device, of_input).requires_grad_()
        y = module(x)
        y.square().sum().backward()
        return [y, x.grad, *(p.grad for p in module.parameters())]

    compare(train)


POINTWISE: dict[str, Callable[[Tensor], object]] = {
    "plus contiguous": lambda x: x + x.contiguous(),
    "contiguous plus": lambda x: x.contiguous() + x,
    "cat": lambda x: torch.cat([x, x], 1),
    "cat contiguous": lambda x: torch.cat([x, x.contiguous()], 1),
    "clone": torch.clone,
    "like": torch.zeros_like,
    "double": torch.Tensor.double,
    "slice": lambda x: x[:, 1:].clone(),
    "out": lambda x: torch.exp(x, out=torch.empty(0, device=x.device)),
    "host": lambda x: (x.cpu(), x.cpu().to(x.device)),
    "contiguous": lambda x: x.to(memory_format=torch.contiguous_format),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_strides_go_through_pointwise_operators(name: str) -> None:
    compare(lambda d: POINTWISE[name](image(d, torch.channels_last)))


def of_type(dtype: torch.dtype, device: str) -> Tensor:
    return torch.zeros(64, dtype=torch.uint8, device=device).view(dtype)


ODD = [
    torch.bits8,
    torch.int4,
    torch.float4_e2m1fn_x2,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.uint16,
]
USES: dict[str, Callable[[Tensor], object]] = {
    "copy": lambda x: x.view(8, -1).t().clone().view(torch.uint8),
    "cat": lambda x: torch.cat([x, x]).view(torch.uint8),
    "add": lambda x: (x + x).view(torch.uint8),
    "add_": lambda x: x.add_(x).view(torch.uint8),
    "relu": lambda x: torch.relu(x).view(torch.uint8),
    "sum": torch.sum,
    "exp": torch.exp,
    "softmax": lambda x: x.softmax(0),
    "sort": lambda x: x.sort()[1],
    "eq": lambda x: x == x,
    "float": torch.Tensor.float,
    "copy_": lambda x: torch.zeros(len(x), device=x.device).copy_(x),
    "fill_ by a tensor": lambda x: x.fill_(
        torch.tensor(1.0, device=x.device)
    ).view(torch.uint8),
    "conv": lambda x: F.conv1d(x.view(1, 1, -1), x[:1].view(1, 1, 1)),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("dtype", ODD, ids=str)
def test_what_a_dtype_cannot_do_is_refused_at_the_call(dtype, name) -> None:
    compare(lambda d: USES[name](of_type(dtype, d)))
    assert torch.ones(2, device="openreg").sum().item() == 2


def test_a_number_of_an_odd_dtype_is_refused_by_the_dtypes_name() -> None:
    for use in (Tensor.item, lambda x: x.fill_(1)):
        with pytest.raises(NotImplementedError, match="for 'Bits8'"):
            use(of_type(torch.bits8, "openreg")[0])
