"""Copy on write: a lazy clone and its source part at the first write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch

import torch_openreg._C as _C
from _probes import LazyClones, bytes_of
from torch_device_kit.conformance.database import (
    ENTRIES,
    applies,
    by_the_book,
    probe,
)
from torch_openreg.openreg.testing import Gate

lazy_clone = torch._lazy_clone
is_lazy = torch._C._is_cow_tensor


# PyTorch says of each kind that it is not to stay as it is.
in_parts = pytest.mark.filterwarnings("ignore::UserWarning")


def pair(device: str = "openreg") -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(4.0, device=device)
    return x, lazy_clone(x)


# What writes without the boxed kernel, or to a tensor in parts.
WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "fill_": lambda x: x.fill_(9),
    "fill_ with a tensor": lambda x: x.fill_(x.new_tensor(9)),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(x + 9),
    "copy_ from the host": lambda x: x.copy_(torch.full((4,), 9.0)),
    "copy_ that converts": lambda x: x.copy_(torch.full((4,), 9)),
    "copy_ from another device": lambda x: x.copy_(x.to("openreg:1") + 9),
    "add_": lambda x: x.add_(9),
    "relu_": lambda x: x.sub_(2).relu_(),
    "exp_": lambda x: x.exp_(),
    "out=": lambda x: torch.exp(x, out=x),
    "add(out=)": lambda x: torch.add(x, x, out=x),
    "abs(out=)": lambda x: torch.abs(x - 9, out=x),
    "a view": lambda x: x[1:].exp_(),
    "an item": lambda x: x.__setitem__(1, 9),
    "an index": lambda x: x.index_fill_(0, x[1:2].long(), 9),
    "a list": lambda x: torch._foreach_exp_([x, x[:1]]),
    "normal_": lambda x: x.normal_(),
    "data_ptr": lambda x: x.data_ptr(),
    "resize_": lambda x: x.resize_(400).fill_(9),
    "a storage's resize_": lambda x: (
        x.untyped_storage().resize_(160),
        x.fill_(9),
    ),
    "a storage's fill_": lambda x: x.untyped_storage().fill_(1),
    "a capsule": lambda x: torch.from_dlpack(
        torch.utils.dlpack.to_dlpack(x)
    ).fill_(9),
    "sharing": lambda x: _C._share_storage(x.untyped_storage()),
}


@pytest.mark.proves("storage-lazy")
@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_not_seen_in_the_other(write: str, device: str) -> None:
    for written in (0, 1):
        both = pair(device)
        WRITES[write](both[written])
        assert both[1 - written].tolist() == [0, 1, 2, 3]
        assert not is_lazy(both[written])
        assert {str(x.untyped_storage().device) for x in both} == {device}


@pytest.mark.proves("storage-lazy")
@pytest.mark.parametrize("form", ["in-place", "out"])
def test_operators_write_to_one_of_two(form: str) -> None:
    mode = LazyClones()
    with by_the_book():
        for op in ENTRIES.values():
            if applies(op, torch.float32, form):
                probe(mode, op, torch.float32, form, 1)
    assert mode.faults == set()
    assert mode.asked > 250


@pytest.mark.queued
@pytest.mark.parametrize("write", ["fill_", "zero_", "copy_", "add_"])
def test_a_write_that_is_queued_parts_them_at_the_call(write: str) -> None:
    x, y = pair()
    torch.accelerator.synchronize()
    gate = Gate()
    with torch.openreg.Stream() as stream:
        gate.hold()
        WRITES[write](y)
        assert not is_lazy(y)
        gate.open()
        stream.synchronize()
    assert x.tolist() == [0, 1, 2, 3]


READS: dict[str, Callable[[torch.Tensor], object]] = {
    "exp": torch.exp,
    "add": lambda x: x + x,
    "sum": torch.sum,
    "cpu": torch.Tensor.cpu,
    "item": lambda x: x[0].item(),
    "clone": torch.clone,
    "to another device": lambda x: x.to("openreg:1"),
    "view": lambda x: x.view(2, 2),
    "out= of another": lambda x: torch.exp(x, out=torch.empty_like(x)),
    "softmax": lambda x: x.softmax(0),
    "index": lambda x: x[x > 1],
}


@pytest.mark.parametrize("read", READS)
def test_a_read_makes_no_copy(read: str) -> None:
    x, y = pair()
    READS[read](y)
    assert is_lazy(x)
    assert is_lazy(y)


def test_memory_that_may_not_be_written_is_not() -> None:
    x = torch.arange(4.0, device="openreg")
    torch._C._set_throw_on_mutable_data_ptr(x)
    for write in ("fill_", "zero_", "copy_ from the host", "exp_", "add_"):
        with pytest.raises(RuntimeError, match="Cannot access data pointer"):
            WRITES[write](x)
    for read in READS.values():
        read(x)
    assert x.tolist() == [0, 1, 2, 3]


def test_the_last_of_them_keeps_the_memory() -> None:
    x, y = pair()
    before = torch.accelerator.memory_allocated()
    for each in (y, x):
        each.exp_()
        assert torch.accelerator.memory_allocated() == before + 512


@in_parts
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_values_of_a_sparse_tensor_part(layout: torch.layout) -> None:
    values = torch.ones(2, device="openreg")
    other = lazy_clone(values)
    at = torch.tensor([0, 1], device="openreg")
    if layout == torch.sparse_coo:
        both = torch.stack([at, at])
        x = torch.sparse_coo_tensor(both, other, (2, 2), is_coalesced=True)
    else:
        rows = torch.tensor([0, 1, 2], device="openreg")
        x = torch.sparse_csr_tensor(rows, at, other, (2, 2))
    assert is_lazy(other)
    x.to_dense()
    assert is_lazy(other)
    x.mul_(3)
    assert values.tolist() == [1, 1]
    assert x.to_dense().tolist() == [[3, 0], [0, 3]]


@in_parts
def test_the_buffer_of_a_nested_tensor_parts() -> None:
    values = torch.ones(4, device="openreg")
    sizes = torch.tensor([[1], [3]])
    x = torch._nested_view_from_buffer(
        lazy_clone(values),
        sizes,
        torch.ones(2, 1, dtype=torch.int64),
        torch.tensor([0, 1]),
    )
    x.mul_(3)
    assert values.tolist() == [1, 1, 1, 1]
    assert x.unbind()[1].tolist() == [3, 3, 3]


@in_parts
def test_the_codes_of_a_quantized_tensor_part() -> None:
    codes = torch.ones(4, dtype=torch.uint8, device="openreg")
    x = torch._empty_affine_quantized(
        (4,), scale=1.0, zero_point=0, dtype=torch.quint8, device="openreg"
    )
    x.set_(lazy_clone(codes).untyped_storage(), 0, (4,), (1,))
    assert x.dequantize().tolist() == [1, 1, 1, 1]
    x.fill_(3)
    assert codes.tolist() == [1, 1, 1, 1]
    assert x.dequantize().tolist() == [3, 3, 3, 3]


def on_device(*values: object, **options: Any) -> torch.Tensor:
    return torch.tensor(values, device="openreg", **options)


def quantized(part: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    codes = part(on_device([1, 2], [3, 4], dtype=torch.uint8))
    x = torch._empty_affine_quantized(
        (2, 2), scale=0.5, zero_point=0, dtype=torch.quint8, device="openreg"
    )
    return x.set_(codes.untyped_storage(), 0, (2, 2), (2, 1))


# A tensor under each key, of parts that `part` may exchange.
IN_PARTS: dict[str, Callable[..., torch.Tensor]] = {
    "Sparse": lambda part: torch.sparse_coo_tensor(
        part(on_device([0, 1], [0, 1])),
        part(on_device(0.25, 0.5)),
        (2, 2),
        is_coalesced=True,
    ),
    "SparseCsr": lambda part: torch.sparse_csr_tensor(
        part(on_device(0, 1, 2)),
        part(on_device(0, 1)),
        part(on_device(0.25, 0.5)),
        (2, 2),
    ),
    "Quantized": quantized,
}


def writers(key: str) -> Iterator[Any]:
    """Overloads with a kernel under this key that write an argument."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    for name in sorted(registered):
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        op = getattr(getattr(torch.ops, space), packet)
        op = getattr(op, overload or "default")
        arguments = op._schema.arguments
        if any(a.alias_info and a.alias_info.is_write for a in arguments):
            yield op


VALUES = {"int": 0, "float": 0.5, "number": 1, "bool": False, "List[int]": [0]}


def arguments(
    op: Any, make: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Something for each argument; `make` has what is for tensors."""
    given, named = [], {}
    for argument in op._schema.arguments:
        kind = str(argument.type)
        value = argument.default_value
        if kind == "Tensor":
            value = make[argument.name]()
        elif not argument.has_default_value():
            value = VALUES.get(kind)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            given.append(value)
    return given, named


@in_parts
@pytest.mark.parametrize("clone_is_written", [True, False])
@pytest.mark.parametrize("key", IN_PARTS)
def test_all_that_writes_to_parts_writes_to_one_of_two(
    key: str, clone_is_written: bool
) -> None:
    others: list[torch.Tensor] = []

    def part(source: torch.Tensor) -> torch.Tensor:
        clone = lazy_clone(source)
        others.append(source if clone_is_written else clone)
        return clone if clone_is_written else source

    ways = (
        lambda: IN_PARTS[key](part),
        lambda: part(on_device([0.5, 0.5], [0.5, 0.5])),
        lambda: torch.tensor(0.5),
    )
    asked = set()
    for op in writers(f"{key}PrivateUse1"):
        names = [
            a.name for a in op._schema.arguments if str(a.type) == "Tensor"
        ]
        for chosen in product(ways, repeat=len(names)):
            others.clear()
            call = arguments(op, dict(zip(names, chosen, strict=True)))
            before = [bytes_of(other) for other in others]
            try:
                op(*call[0], **call[1])
            except (IndexError, RuntimeError):
                continue  # not all go together, nor are all fit for this one
            asked.add(op)
            for other, old in zip(others, before, strict=True):
                assert bytes_of(other).equal(old), op
    assert len(asked) >= 34


def test_running_statistics_part() -> None:
    norm = torch.nn.BatchNorm1d(2).to("openreg")
    mean = lazy_clone(norm.running_mean)
    norm(torch.ones(3, 2, device="openreg"))
    assert mean.tolist() == [0, 0]
    assert norm.running_mean.tolist() == pytest.approx([0.1, 0.1])
