"""Harder questions to the operators that calls reach: probes of the kit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from torch_device_kit.conformance import database
from torch_device_kit.conformance.compare import device
from torch_device_kit.conformance.probes import (
    Call,
    Cloner,
    Probe,
    is_plain,
    tensors,
    with_outputs,
)


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
        state = device().rng_state()
        results = []
        for side in ("clone", "source"):
            copier, lazy = Cloner(Tensor.clone), Cloner(torch._lazy_clone)
            source = tree_map(copier, call)
            clone = tree_map(lazy, source)
            given = clone if side == "clone" else source
            other = [pair[side != "clone"] for pair in lazy.pairs.values()]
            before = [bytes_of(tensor) for tensor in other]
            device().set_rng_state(state)
            try:
                result = func(*given[0], **given[1])
            except Exception:
                return
            device().synchronize()
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
        state = device().rng_state()
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
                device().set_rng_state(state)
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


# The kinds that they are, in a sweep of the operator database.
PROBES: dict[str, type[Probe]] = {
    "lazy-clone": LazyClones,
    "guarded-out": GuardedOutputs,
    "guarded-arguments": GuardedArguments,
}


def check(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """How often an entry's operators were asked, and what was wrong."""
    return database.probed(PROBES[kind](), name, dtype, count)
