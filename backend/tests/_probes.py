"""Probes: what calls reach the device is asked again, under a harder question.

Each is a mode that sees every operator below autograd, with the arguments that
it really gets. `asked` counts the questions, `faults` says what went wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
)
from torch.utils._pytree import tree_leaves, tree_map

from torch_openreg import openreg

Call = tuple[tuple[Any, ...], dict[str, Any]]


def is_plain(value: object) -> bool:
    """Whether it is a tensor of the device and nothing but its memory."""
    return (
        isinstance(value, Tensor)
        and value.device.type == "openreg"
        and value.layout == torch.strided
        and not value.is_quantized
        and not value.is_nested
    )


def tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage, on the host."""
    storage = tensor.untyped_storage().cpu()
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def close(got: Tensor, expected: Tensor) -> bool:
    got, expected = got.detach().cpu(), expected.detach().cpu()
    if got.dtype == torch.complex32 or torch.equal(got, expected):
        return True
    try:
        torch.testing.assert_close(
            got, expected, equal_nan=True, check_stride=False
        )
    except AssertionError:
        return False
    return True


class Cloner:
    """Copies the plain tensors among arguments, with all that they share."""

    def __init__(self, copy: Callable[[Tensor], Tensor]) -> None:
        self.copy = copy
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, value: Any) -> Any:
        if not is_plain(value) or value._is_zerotensor():
            return value
        if id(value) not in self.pairs:
            self.pairs[id(value)] = (value, self.clone(value))
        return self.pairs[id(value)][1]

    def clone(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            whole = flat.set_(storage)
            self.storages[storage._cdata] = self.copy(whole).untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            self.storages[storage._cdata],
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )
        twin = twin.conj() if tensor.is_conj() else twin
        return twin._neg_view() if tensor.is_neg() else twin

    def sources(self) -> list[Tensor]:
        return [source for source, _ in self.pairs.values()]

    def copies(self) -> list[Tensor]:
        return [copy for _, copy in self.pairs.values()]


class Probe(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.asked = 0
        self.faults: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        call = (args, kwargs or {})
        if any(map(is_plain, tree_leaves(call))) and self.suits(func):
            state = openreg.get_rng_state()
            with warnings.catch_warnings(), _disable_current_modes():
                warnings.simplefilter("ignore")
                self.ask(func, call)
            openreg.set_rng_state(state)
        return func(*call[0], **call[1])

    def suits(self, func: Any) -> bool:
        raise NotImplementedError

    def ask(self, func: Any, call: Call) -> None:
        raise NotImplementedError


def written_by(func: Any, call: Call) -> list[Tensor]:
    """The tensors among the arguments that the schema calls written."""
    arguments = func._schema.arguments
    values = dict(zip((a.name for a in arguments), call[0], strict=False))
    values |= call[1]
    return tensors(
        [
            values.get(argument.name)
            for argument in arguments
            if argument.alias_info and argument.alias_info.is_write
        ]
    )


def leaves_to_chance(func: Any) -> bool:
    """Whether the result holds what was in memory."""
    name = func._schema.name
    return "empty" in name or name.startswith(("aten::resize", "aten::_ctc"))


class LazyClones(Probe):
    """A write to a lazy clone, or to its source, is not seen in the other."""

    def suits(self, func: Any) -> bool:
        return func._schema.name not in ("aten::set_", "aten::resize_")

    def ask(self, func: Any, call: Call) -> None:
        state = openreg.get_rng_state()
        results = []
        for side in ("clone", "source"):
            copier, lazy = Cloner(Tensor.clone), Cloner(torch._lazy_clone)
            source = tree_map(copier, call)
            clone = tree_map(lazy, source)
            given = clone if side == "clone" else source
            other = lazy.sources() if side == "clone" else lazy.copies()
            before = [bytes_of(tensor) for tensor in other]
            openreg.set_rng_state(state)
            try:
                result = func(*given[0], **given[1])
            except Exception:
                return
            openreg.synchronize()
            self.asked += 1
            results.append(tensors(result))
            for tensor, old in zip(other, before, strict=True):
                if not bytes_of(tensor).equal(old):
                    self.faults.add(f"{func}: a write to a {side} is shared")
            self.check_reads(func, given)
        for one, two in zip(*results, strict=True):
            told = is_plain(one) and not leaves_to_chance(func)
            if told and not close(one, two):
                self.faults.add(f"{func}: results differ")

    def check_reads(self, func: Any, given: Call) -> None:
        written = {
            t.untyped_storage()._cdata
            for t in written_by(func, given)
            if is_plain(t)
        }
        written |= self.keeps(func, given)
        for tensor in filter(is_plain, tensors(given)):
            storage = tensor.untyped_storage()
            empty = storage.nbytes() == 0 or tensor._is_zerotensor()
            if not (
                empty
                or storage._cdata in written
                or torch._C._is_cow_tensor(tensor)  # type: ignore[attr-defined]
            ):
                self.faults.add(f"{func}: a read makes the copy")

    def keeps(self, func: Any, given: Call) -> set[int]:
        """What is written though the schema does not say so."""
        if func._schema.name != "aten::native_batch_norm":
            return set()
        return {t.untyped_storage()._cdata for t in tensors(given[0][3:5])}


def with_order(shape: list[int], order: list[int], gap: int) -> list[int]:
    """Strides that rise in this order of dimensions; the first is `gap`."""
    strides, step = [0] * len(shape), gap
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return strides


# How an `out=` can lie in its memory, by the strides that a shape gets.
LAYOUTS: dict[str, Callable[[list[int]], list[int]]] = {
    "reversed": lambda s: with_order(s, list(range(len(s))), 1),
    "reversed with gaps": lambda s: with_order(s, list(range(len(s))), 2),
    "with gaps": lambda s: with_order(s, list(range(len(s)))[::-1], 2),
    "with long rows": lambda s: with_order(
        [*s[:-1], s[-1] + 3] if s else s, list(range(len(s)))[::-1], 1
    ),
    "reversed matrices": lambda s: with_order(
        s, [*range(len(s))[-1:-3:-1], *range(max(len(s) - 2, 0))], 1
    ),
    "expanded": lambda s: [0] * len(s),
}


class Guarded:
    """A tensor in the middle of bytes that nobody may write."""

    def __init__(self, like: Tensor, layout: str) -> None:
        shape = list(like.shape)
        self.stride = tuple(LAYOUTS[layout](shape))
        ends = zip(shape, self.stride, strict=True)
        length = 1 + sum((size - 1) * step for size, step in ends)
        guard = 512 + 8 * like.numel()
        size = (length + 2 * guard) * like.element_size()
        self.memory = torch.full((size,), 0xA5, dtype=torch.uint8)
        inside = torch.zeros(length + 2 * guard, dtype=torch.bool)
        inside.as_strided(shape, self.stride, guard).fill_(True)
        self.outside = ~inside.repeat_interleave(like.element_size())
        self.there = self.memory.to("openreg")
        self.tensor = torch.empty(0, dtype=like.dtype, device="openreg").set_(
            self.there.untyped_storage(), guard, like.shape, self.stride
        )

    def faults(self, expected: Tensor) -> Iterator[str]:
        """What is wrong once something else wrote `expected` to it."""
        now = self.there.cpu()
        if not now[self.outside].equal(self.memory[self.outside]):
            yield "writes beyond"
        strides = zip(self.tensor.stride(), self.stride, strict=True)
        if any(
            one != two and size > 1
            for (one, two), size in zip(strides, expected.shape, strict=True)
        ):
            yield "changes the strides of"
        if not close(self.tensor, expected):
            yield "writes wrong values to"


def with_outputs(func: Any) -> Iterator[tuple[Any, list[str]]]:
    """The overloads of an operator that have the same arguments and `out=`."""
    names = [argument.name for argument in func._schema.arguments]
    name = func._schema.name.split("::")[1]
    packet = getattr(getattr(torch.ops, func.namespace), name)
    for overload in packet.overloads():
        op = getattr(packet, overload)
        outs = [a.name for a in op._schema.arguments if a.is_out]
        rest = [a for a in op._schema.arguments if not a.is_out]
        types = [str(a.type) for a in func._schema.arguments]
        if outs and [a.name for a in rest] == names:
            one_each = [str(a.type) for a in op._schema.returns] == [
                "Tensor" for _ in outs
            ]
            if [str(a.type) for a in rest] == types and one_each:
                yield op, outs


def draws(op: Any) -> bool:
    """Whether it draws numbers, which go by the order of memory."""
    tags: list[torch.Tag] = op.tags
    return torch.Tag.nondeterministic_seeded in tags


def accepts_expanded(op: Any) -> bool:
    """Whether PyTorch writes each element in its turn."""
    return op._schema.name in (
        "aten::cummax",
        "aten::cummin",
        "aten::multinomial",
    )


def chooses_strides(op: Any) -> bool:
    """Whether PyTorch gives the `out=` the memory format of an argument."""
    return op._schema.name in ("aten::max_unpool2d",)


class GuardedOutputs(Probe):
    """An `out=` of any strides gets the result, and its neighbours nothing."""

    def suits(self, func: Any) -> bool:
        written = any(a.alias_info for a in func._schema.arguments)
        return not written and not leaves_to_chance(func)

    def ask(self, func: Any, call: Call) -> None:
        state = openreg.get_rng_state()
        try:
            results = tree_leaves(func(*call[0], **call[1]))
        except Exception:
            return
        if not all(is_plain(r) for r in results):
            return
        if not any(r.numel() > 1 for r in results):
            return
        for op, names in with_outputs(func):
            if len(names) != len(results):
                continue
            for layout in LAYOUTS:
                openreg.set_rng_state(state)
                self.ask_one(op, call, names, layout, results)

    def ask_one(
        self,
        op: Any,
        call: Call,
        names: list[str],
        layout: str,
        results: list[Tensor],
    ) -> None:
        self.asked += 1
        guarded = [Guarded(result, layout) for result in results]
        outputs = [each.tensor for each in guarded]
        named = call[1] | dict(zip(names, outputs, strict=True))
        try:
            op(*call[0], **named)
            error = ""
        except Exception as failure:
            error = str(failure)
        if layout == "expanded":
            if accepts_expanded(op):
                return
            if "refers to a single memory location" not in error:
                self.faults.add(f"{op} accepts an expanded out=: {error[:80]}")
        elif error:
            self.faults.add(f"{op} refuses an out= {layout}: {error[:80]}")
        else:
            for each, result in zip(guarded, results, strict=True):
                for fault in each.faults(result):
                    by_memory = "values" in fault and draws(op)
                    by_format = "strides" in fault and chooses_strides(op)
                    if not (by_memory or by_format):
                        self.faults.add(f"{op} {fault} an out= {layout}")


def in_double(value: Any) -> Any:
    numbers = isinstance(value, Tensor) and (
        value.is_floating_point() or value.is_complex()
    )
    if not numbers:
        return value
    return value.to(torch.promote_types(value.dtype, torch.float64))


class GuardedArguments(Probe):
    """An argument of any strides is read as a contiguous one is."""

    def suits(self, func: Any) -> bool:
        written = any(a.alias_info for a in func._schema.arguments)
        by_memory = func._schema.name in (
            "aten::as_strided_copy",
            "aten::as_strided_scatter",
            "aten::_linalg_det",  # decomposes what lies in order
            "aten::_linalg_slogdet",
        )
        chance = draws(func) or leaves_to_chance(func)
        return not (written or by_memory or chance)

    def ask(self, func: Any, call: Call) -> None:
        expected = self.results(func, call)
        given = {id(t): t for t in tensors(call) if is_plain(t)}
        for tensor in given.values():
            if expected and tensor.numel() > 1 and not tensor._is_zerotensor():
                for layout in LAYOUTS.keys() - {"expanded"}:
                    self.ask_one(func, call, tensor, layout, expected)

    def ask_one(
        self,
        func: Any,
        call: Call,
        tensor: Tensor,
        layout: str,
        expected: list[Tensor],
    ) -> None:
        self.asked += 1
        got = self.results(func, self.exchange(call, tensor, layout))
        if not got or all(map(close, got, expected)):
            return  # none if it is refused
        # A sum is rounded in the order of memory. In double that hardly shows.
        exact = self.results(func, tree_map(in_double, call))
        other = self.exchange(call, tensor, layout, in_double)
        got = self.results(func, other)
        if not exact or not got or not all(map(close, got, exact)):
            self.faults.add(f"{func} reads wrong values of strides {layout}")

    def exchange(
        self,
        call: Call,
        tensor: Tensor,
        layout: str,
        convert: Callable[[Any], Any] = lambda value: value,
    ) -> Call:
        """The call with `tensor` in another layout, and all converted."""
        plain = convert(tensor.detach().resolve_conj().resolve_neg())
        strided = Guarded(plain, layout).tensor.copy_(plain)
        other: Call = tree_map(
            lambda v: strided if v is tensor else convert(v), call
        )
        return other

    def results(self, func: Any, call: Call) -> list[Tensor]:
        """Plain results, if there is nothing else."""
        try:
            results = tensors(func(*call[0], **call[1]))
        except Exception:
            return []
        return results if all(map(is_plain, results)) else []


# Copies take tensors of two devices. The backward pass of a transposed
# convolution looks at its input alone, and ends the process (torch 2.13).
NOT_ASKED = (
    "aten::copy_",
    "aten::_copy_from",
    "aten::_to_copy",
    "aten::convolution_backward",
)


def has_kernel(func: Any) -> bool:
    """Whether the device has a kernel, and not PyTorch one for all devices."""
    key = "PrivateUse1"
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


class Elsewhere(Probe):
    """A tensor on another device is refused, be it an argument or `out=`.

    A number in a 0-dim CPU tensor is read, wherever a tensor may be; and so is
    an index on the CPU.
    """

    def suits(self, func: Any) -> bool:
        return not func._schema.name.startswith(NOT_ASKED)

    def ask(self, func: Any, call: Call) -> None:
        args, kwargs = tree_map(Cloner(Tensor.clone), call)
        try:
            results = tree_leaves(func(*args, **kwargs))
        except Exception:
            return  # it is wrong in another way
        there = [t for t in tensors(call) if t.device.type == "openreg"]
        if not has_kernel(func):
            there = []
        names = [argument.name for argument in func._schema.arguments]
        named = dict(zip(names, call[0], strict=False)) | call[1]
        index = named.get("indices")
        indices = (
            set() if isinstance(index, Tensor) else set(map(id, tensors(index)))
        )
        for tensor in there:
            if len({id(t) for t in there}) > 1 and is_plain(tensor):
                for device in ("cpu", "openreg:1"):
                    read = tensor.dim() == 0 or id(tensor) in indices
                    if device != "cpu" or not read:
                        self.try_argument(func, call, tensor, device)
        if any(a.alias_info for a in func._schema.arguments):
            return
        if all(map(is_plain, results)):
            for op, names in with_outputs(func):
                if len(names) == len(results) and has_kernel(op):
                    self.try_outputs(op, call, names, results)

    def try_argument(
        self, func: Any, call: Call, tensor: Tensor, device: str
    ) -> None:
        other = tensor.to(device)
        cloner = Cloner(Tensor.clone)
        given = tree_map(lambda v: other if v is tensor else cloner(v), call)
        self.refuses(func, given, f"an argument on {device}")

    def try_outputs(
        self, op: Any, call: Call, names: list[str], results: list[Tensor]
    ) -> None:
        for name in names:
            for device in ("cpu", "openreg:1"):
                outputs = {
                    n: torch.empty_like(r, device=device if n == name else None)
                    for n, r in zip(names, results, strict=True)
                }
                self.refuses(op, (call[0], call[1] | outputs), f"out= {device}")

    def refuses(self, func: Any, call: Call, what: str) -> None:
        self.asked += 1
        try:
            func(*call[0], **call[1])
        except (RuntimeError, NotImplementedError, IndexError) as error:
            message = str(error)
            if "device" not in message:
                self.faults.add(f"{func} says of {what}: {message[:100]}")
        else:
            self.faults.add(f"{func} takes {what}")
