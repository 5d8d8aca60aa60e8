"""Probes: what calls reach the device is asked again, under a harder question.

Each is a mode that sees every operator below autograd, with the arguments that
it really gets. `asked` counts the questions, `faults` says what went wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
)
from torch.utils._pytree import tree_leaves, tree_map

from torch_device_kit import operators
from torch_device_kit.conformance.compare import Copier, device

Call = tuple[tuple[Any, ...], dict[str, Any]]


def is_plain(value: object) -> bool:
    """Whether it is a tensor of the device and nothing but its memory."""
    return (
        isinstance(value, Tensor)
        and value.device.type == device().name
        and value.layout == torch.strided
        and not value.is_quantized
        and not value.is_nested
    )


def tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


class Cloner(Copier):
    """Copies the plain tensors among arguments."""

    def takes(self, value: Any) -> bool:
        return is_plain(value) and not value._is_zerotensor()


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
            state = device().rng_state()
            with warnings.catch_warnings(), _disable_current_modes():
                warnings.simplefilter("ignore")
                self.ask(func, call)
            device().set_rng_state(state)
        return func(*call[0], **call[1])

    def suits(self, func: Any) -> bool:
        raise NotImplementedError

    def ask(self, func: Any, call: Call) -> None:
        raise NotImplementedError


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


# Copies take tensors of two devices. The backward pass of a transposed
# convolution looks at its input alone, and ends the process (torch 2.13).
NOT_ASKED = (
    "aten::copy_",
    "aten::_copy_from",
    "aten::_to_copy",
    "aten::convolution_backward",
)


def has_kernel(func: Any) -> bool:
    """Whether the device computes it, and not a kernel for all devices."""
    kernel = operators.table(func.name()).get("PrivateUse1")
    return kernel in ("kernel", operators.FALLBACK)


class MixedDevices(Probe):
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
        name = device().name
        there = [t for t in tensors(call) if t.device.type == name]
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
                for other in device().others:
                    read = tensor.dim() == 0 or id(tensor) in indices
                    if other != "cpu" or not read:
                        self.try_argument(func, call, tensor, other)
        if any(a.alias_info for a in func._schema.arguments):
            return
        if all(map(is_plain, results)):
            for op, names in with_outputs(func):
                if len(names) == len(results) and has_kernel(op):
                    self.try_outputs(op, call, names, results)

    def try_argument(
        self, func: Any, call: Call, tensor: Tensor, where: str
    ) -> None:
        other = tensor.to(where)
        cloner = Cloner(Tensor.clone)
        given = tree_map(lambda v: other if v is tensor else cloner(v), call)
        self.refuses(func, given, f"an argument on {where}")

    def try_outputs(
        self, op: Any, call: Call, names: list[str], results: list[Tensor]
    ) -> None:
        for name in names:
            for other in device().others:
                outputs = {
                    n: torch.empty_like(r, device=other if n == name else None)
                    for n, r in zip(names, results, strict=True)
                }
                self.refuses(op, (call[0], call[1] | outputs), f"out= {other}")

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
