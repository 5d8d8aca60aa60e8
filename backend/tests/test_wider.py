"""Dtypes that the CPU's kernels lack: computed in the next one, and rounded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

import _rows
from torch_device_kit.conformance.compare import Mover
from torch_device_kit.conformance.database import (
    ENTRIES,
    by_the_book,
    plain,
    with_gradients,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf support is experimental"
)
SAMPLES = 8


class Row(NamedTuple):
    entry: str
    dtype: torch.dtype
    wider: torch.dtype | None  # what it is computed in; None: it is refused


EVERY = [
    Row(
        entry,
        getattr(torch, row["dtype"]),
        getattr(torch, row["computed_in"]) if "computed_in" in row else None,
    )
    for row in _rows.read("operators_special")["wider"]
    for entry in row["entries"]
]
ROWS = [row for row in EVERY if row.wider is not None]


def test_the_rows_are_what_cuda_takes_and_the_cpu_lacks() -> None:
    assert sorted((row.entry, str(row.dtype)) for row in EVERY) == sorted(
        (name, str(dtype))
        for name, op in ENTRIES.items()
        for dtype in set(op.dtypesIfCUDA) - set(op.dtypes)
    )


def samples(op: Any, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    random.seed(0)
    for sample in islice(
        op.sample_inputs_func(op, "cpu", dtype, grad), SAMPLES
    ):
        yield sample.input, list(sample.args), dict(sample.kwargs)


def convert(changed: dict[Any, Any]) -> Callable[[Any], Any]:
    """Changes the dtype of tensors, and of what asks for one."""

    def change(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return changed.get(value, value)
        if not isinstance(value, Tensor) or value.dtype not in changed:
            return value
        result = value.detach().to(changed[value.dtype])
        return result.requires_grad_(value.requires_grad)

    return change


def narrowed(row: Row) -> dict[torch.dtype | None, torch.dtype]:
    if row.dtype in (torch.float16, torch.complex32):
        return {torch.float32: torch.float16, torch.complex64: torch.complex32}
    return {row.wider: row.dtype}


def nansum(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.where(x.isnan(), 0, x).sum(*args, **kwargs)


def nanmean(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return nansum(x, *args, **kwargs) / (~x.isnan()).sum(*args, **kwargs)


REFERENCES = {"nansum": nansum, "nanmean": nanmean}


def compare(
    row: Row, way: Callable[[Any], Any], sample: Any, **tolerance: float
) -> None:
    """The results on the device, and in the wider dtype on the CPU."""
    op = ENTRIES[row.entry]
    torch.manual_seed(7)
    got = tree_leaves(way(op)(tree_map(Mover("openreg"), sample)))
    torch.manual_seed(7)
    widen = convert({row.dtype: row.wider})
    theirs = way(REFERENCES.get(row.entry, op))(tree_map(widen, sample))
    for one, wide in zip(got, tree_leaves(theirs), strict=True):
        other = convert(narrowed(row))(wide)
        if isinstance(one, Tensor):
            assert one.device.type == "openreg"
            assert one.stride() in (wide.stride(), other.stride())
            one, other = one.detach().cpu(), other.detach()
            if tolerance and row.dtype == torch.complex32:
                # A step may leave the range of half precision.
                one, other = one.cfloat(), other.cfloat()
                other = torch.where(one.isfinite(), other, one)
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)


def of(row: Row) -> str:
    return f"{row.entry}-{str(row.dtype)[6:]}"


@pytest.mark.parametrize("row", ROWS, ids=of)
@pytest.mark.proves("special-wider")
def test_the_result_is_that_of_the_wider_dtype_rounded(row: Row) -> None:
    # Each dimension is a step, and is rounded.
    steps = {"rtol": 0.05, "atol": 0.05} if "fft." in row.entry else {}
    with by_the_book():
        for sample in samples(ENTRIES[row.entry], row.dtype, grad=False):
            compare(row, plain, sample, **steps)


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in ROWS
        if ENTRIES[row.entry].supports_autograd
        and row.dtype in ENTRIES[row.entry].backward_dtypesIfCUDA
        and (row.dtype.is_floating_point or row.dtype.is_complex)
    ],
    ids=of,
)
def test_so_are_gradients_whose_steps_are_each_rounded(row: Row) -> None:
    op = ENTRIES[row.entry]

    def way(op: Any) -> Callable[[Any], Any]:
        return with_gradients(op, finish)

    with by_the_book():
        for sample in op.sample_inputs_func(op, "cpu", row.dtype, True):
            finish = sample.output_process_fn_grad
            break
        for sample in samples(op, row.dtype, grad=True):
            compare(row, way, sample, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("row", [r for r in EVERY if r.wider is None], ids=of)
def test_what_no_dtype_has_is_refused(row: Row) -> None:
    op = ENTRIES[row.entry]
    moved = tree_map(Mover("openreg"), next(samples(op, row.dtype, False)))
    # It has no kernel on the CPU, and it may draw (torch 2.13).
    with pytest.raises(NotImplementedError, match="takes no generator"):
        plain(op)(moved)


def test_what_a_kernel_refuses_in_a_sentence_is_left_as_it_is() -> None:
    x = torch.ones(2, dtype=torch.complex64)
    for device in ("cpu", "openreg"):
        with pytest.raises(NotImplementedError) as refused:
            torch.ceil(x.to(device))
        assert str(refused.value) == "ceil is not supported for complex inputs"


def test_rows_of_integers_and_truth_values_are_known_by_their_numbers() -> None:
    x = torch.tensor([1, 2, 2, 7], device="openreg")
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, x.dtype):
        counts = torch.histc(x.to(dtype), bins=3, min=1, max=7)
        assert (counts.dtype, counts.tolist()) == (dtype, [3, 0, 1])
    assert torch.histc(x, bins=2).tolist() == [3, 1]
    truth = torch.eye(3, device="openreg").bool()
    assert (truth.trace().dtype, truth.trace().item()) == (torch.int64, 3)
    assert truth.abs().equal(truth)
    out = torch.zeros(4, dtype=x.dtype, device="openreg")[::2]
    assert torch.histc(x, 2, out=out) is out
    assert out.tolist() == [3, 1]


def half(*values: complex) -> Tensor:
    return torch.tensor(values, dtype=torch.complex64).to(
        "openreg", torch.complex32
    )


def test_results_go_where_they_are_asked_for() -> None:
    x = half(3 + 4j, -4)
    alias = x.view(2)
    assert x.sqrt_() is x
    assert alias.tolist() == [2 + 1j, 2j]
    assert x.div_(2j).tolist() == [0.5 - 1j, 1]
    assert x.lerp_(half(0, 0), 0.5).tolist() == [0.25 - 0.5j, 0.5]
    whole = half(0, 9, 0, 9)
    torch.sqrt(half(4, 16), out=whole[::2])
    assert whole.tolist() == [2, 9, 4, 9]
    out = half()
    assert torch.sqrt(half(4, 16), out=out) is out
    assert out.tolist() == [2, 4]
    full = torch.zeros(2, dtype=torch.complex64, device="openreg")
    assert torch.sqrt(half(4, 16), out=full).tolist() == [2, 4]
    with pytest.warns(UserWarning, match="resized"):
        torch.sqrt(half(4), out=out)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.sqrt(half(4, 4), out=half(1).expand(2))


def test_a_dtype_that_the_kernel_has_is_left_alone() -> None:
    x, full = half(6, 8), half(2, 2).to(torch.complex64)
    assert (x / full).dtype == torch.complex64
    assert x.sum(dtype=torch.complex64).dtype == torch.complex64
    assert (x / 2j).dtype == torch.complex32
    assert x.real.sqrt().dtype == torch.float16


def test_dtypes_that_have_none_in_common_are_not_asked_for_it() -> None:
    number, index = torch.tensor(3.0).to(torch.float8_e4m3fn), torch.tensor([0])
    taken = number.to("openreg").index_select(0, index.to("openreg"))
    assert torch.equal(taken.cpu(), number.index_select(0, index))


def test_a_sum_leaves_out_each_complex_number_with_a_nan() -> None:
    nan = float("nan")
    for dtype in torch.complex64, torch.complex128, torch.complex32:
        z = half(1 + 1j, complex(nan, 5), complex(5, nan), 3).to(dtype)
        z.requires_grad_()
        assert z.nansum().item() == 4 + 1j
        assert z.nanmean().item() == 2 + 0.5j
        out = torch.empty(1, dtype=dtype, device="openreg")
        with torch.no_grad():
            torch.nansum(z, 0, True, out=out)
        assert out.tolist() == [4 + 1j]
        z.nansum().real.backward()
        assert z.grad.tolist() == [1, 0, 0, 1]


def test_half_precision_is_transformed_in_any_size() -> None:
    x = torch.arange(6.0, device="openreg").half().requires_grad_()
    spectrum = torch.fft.rfft(x)
    assert spectrum.dtype == torch.complex32
    back = torch.fft.irfft(spectrum, 6)
    assert back.dtype == torch.float16
    torch.testing.assert_close(back, x, atol=0.02, rtol=0)
    back.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x), atol=0.02, rtol=0)


def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.ones(shape, device="openreg").to(dtype)


# What is queued or runs at once on aliases, and a dtype that it lacks.
LACKING = {
    "mm": lambda: made(torch.bool, 2, 2) @ made(torch.bool, 2, 2),
    "_softmax": lambda: torch._softmax(made(torch.int64, 2), 0, False),
    "gather": lambda: made(torch.uint16, 2).gather(0, made(torch.int64, 2)),
    "convolution_overrideable": lambda: torch.conv1d(
        made(torch.bool, 1, 1, 2), made(torch.bool, 1, 1, 2)
    ),
    "add": lambda: made(torch.uint16, 2) + made(torch.uint16, 2),
    "sub_": lambda: made(torch.uint16, 2).sub_(made(torch.uint16, 2)),
}


@pytest.mark.parametrize("name", LACKING)
def test_no_kernel_of_the_cpu_is_named(name: str) -> None:
    says = f"^openreg: 'aten::{name}' is not implemented for '.*' on openreg:0$"
    with pytest.raises(NotImplementedError, match=says):
        LACKING[name]()


# What a kernel says of the CPU in other words, and what the device says.
SAYS_CPU = {
    "topk of bool": (
        lambda: made(torch.bool, 2).topk(1),
        "^topk does not support bool dtypes on openreg:0$",
    ),
    "topk of complex": (
        lambda: made(torch.complex64, 2).topk(1),
        "^ *topk does not support complex dtypes on openreg:0$",
    ),
    "sort": (
        lambda: made(torch.complex64, 2).sort(),
        "^ *Sort does not support complex dtypes on openreg:0$",
    ),
    "embedding_bag": (
        lambda: F.embedding_bag(
            made(torch.int64, 1, 1), made(torch.bool, 2, 2), mode="sum"
        ),
        "but got openregBoolType instead",
    ),
    "sparse.mm": (
        lambda: torch.sparse.mm(
            made(torch.float32, 2, 2).to_sparse_csr(),
            made(torch.bool, 2, 2),
            "sum",
        ),
        "but got openregBoolType instead",
    ),
    "masked_scatter": (
        lambda: made(torch.float32, 2).masked_scatter_(
            made(torch.bool, 2, 2), made(torch.float32, 4)
        ),
        "openregBoolType",
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", SAYS_CPU)
def test_a_kernels_message_says_where_the_tensors_are(name: str) -> None:
    call, says = SAYS_CPU[name]
    with pytest.raises(RuntimeError, match=says) as refusal:
        call()
    assert "CPU" not in str(refusal.value)


def test_a_refusal_names_the_operator_the_dtype_and_the_device() -> None:
    x = torch.ones(4, dtype=torch.bool, device="openreg:1")
    tiny = torch.ones(2, device="openreg").to(torch.float8_e4m3fn)
    for call, says in (
        (lambda: x.histc(), "'aten::histc' is not implemented for 'Bool'"),
        (lambda: tiny.exp(), "'aten::exp' is not implemented for 'Float8_e4m"),
        (lambda: tiny.sum(), "'aten::sum' is not implemented for 'Float8_e4m"),
    ):
        with pytest.raises(NotImplementedError, match=f"openreg: {says}"):
            call()
    with pytest.raises(NotImplementedError, match=r"on openreg:1$"):
        x.histc()
