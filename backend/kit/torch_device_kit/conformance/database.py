"""PyTorch's operator database: what is asked of an entry, by which calls."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from torch_device_kit.conformance import probes
from torch_device_kit.conformance.compare import Mover, device, faults
from torch_device_kit.conformance.known import Question

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # hypothesis is optional
    from torch.testing._internal.common_methods_invocations import op_db
# That import forbids to set torch.backends.* for the rest of the process.
torch.backends.__allow_nonbracketed_mutation_flag = True

ENTRIES = {
    f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op
    for op in op_db
}
Call = tuple[Callable[[Any], Any], Any]
# What is asked, each with the first level that asks it.
KINDS = {
    "forward": "runs",
    "strided": "runs",  # with arguments that are not contiguous
    "in-place": "runs",
    "out": "runs",
    "out-strided": "complete",  # with an `out=` whose strides must stay
    "out-dtype": "complete",  # with an `out=` of another dtype
    "gradient": "trains",
    "second-gradient": "complete",
    "error": "complete",  # with arguments that must be refused
    "mixed-devices": "complete",  # with one of them on another device
}
DTYPES = {
    "float32": "runs",
    "int64": "runs",
    "bool": "runs",
    "bfloat16": "trains",
    "float64": "complete",
    "complex64": "complete",
}

# Their results hold whatever was in memory.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided"}
UNINITIALIZED |= {"new_empty", "new_empty_strided"}
# PyTorch wants this argument on the host, whatever the device.
HOST_ARGUMENTS = {"tensor_split"}


def on_host_again(
    name: str, call: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """The same call with the arguments that belong on the host there."""
    if name.split(".")[0] not in HOST_ARGUMENTS:
        return call

    def calls(sample: Any) -> Any:
        back = [a.cpu() if isinstance(a, Tensor) else a for a in sample[1]]
        return call((sample[0], back, sample[2]))

    return calls


def plain(op: Any) -> Callable[[Any], Any]:
    return lambda sample: op(sample[0], *sample[1], **sample[2])


def differentiable(values: Any) -> list[Tensor]:
    return [
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]


def derivatives(
    outputs: list[Tensor], inputs: list[Tensor], again: bool = False
) -> Sequence[Tensor | None]:
    """Those of weighted outputs by the inputs; `again` lets them have some."""
    weights = [
        (torch.arange(o.numel()).remainder(7).add(1) / 4)
        .to(o.dtype)
        .reshape(o.shape)
        .to(o.device)
        for o in outputs
    ]
    return torch.autograd.grad(
        outputs, inputs, weights, allow_unused=True, create_graph=again
    )


def with_gradients(
    op: Any, finish: Callable[[Any], Any], order: int = 1
) -> Callable[..., Any]:
    """The first derivatives of all results by all arguments, or the second."""

    def call(sample: Any) -> Any:
        inputs = differentiable(sample)
        found: Any = differentiable(finish(plain(op)(sample)))
        for left in range(order)[::-1]:
            if not found:
                return None
            gradients = derivatives(found, inputs, again=left > 0)
            found = differentiable(gradients) if left else gradients
        return found

    return call


def spread(like: Tensor) -> Tensor:
    """A tensor with the order of its strides reversed, and gaps."""
    strides, step = [], 2
    for size in like.shape:
        strides.append(step)
        step *= max(size, 1)
    return torch.empty_strided(like.shape, strides, dtype=like.dtype).fill_(3)


# What is given as `out=`: what fits, and what must change or be refused.
OUTPUTS: dict[str, list[Callable[[Tensor], Tensor]]] = {
    "out": [
        lambda like: torch.full(like.shape, 3).to(like.dtype),
        lambda like: torch.empty(0, dtype=like.dtype),
        lambda like: torch.full((2, 3, 1, 1, 1, 2), 3).to(like.dtype),
    ],
    "out-strided": [spread],
    "out-dtype": [
        lambda like: torch.full(like.shape, 3).to(
            torch.int8 if like.dtype.is_floating_point else torch.bool
        )
    ],
}


def with_out(op: Any, kind: type) -> Callable[[Any], Any]:
    def call(arguments: Any) -> Any:
        sample, out = arguments
        if not isinstance(out, Tensor):
            out = kind(out) if kind is list else tuple(out)
        return op(sample[0], *sample[1], out=out, **sample[2])

    return call


def has_sparse(sample: Any) -> bool:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(
        isinstance(t, Tensor) and t.layout != torch.strided for t in leaves
    )


def samples(op: Any, dtype: torch.dtype, kind: str) -> Iterator[Any]:
    """Sample inputs on the CPU, the same ones at each call."""
    # Not `op.sample_inputs`, which walks the stack at each sample.
    torch.manual_seed(0)
    random.seed(0)
    if kind == "error":
        for error_input in op.error_inputs_func(op, "cpu"):
            yield error_input.sample_input
        return
    grad = kind.endswith("gradient")
    for sample in op.sample_inputs_func(op, "cpu", dtype, grad):
        if kind == "strided":
            if not has_sparse(sample):
                yield sample.noncontiguous()
            continue
        yield sample
        if dtype.is_complex and isinstance(sample.input, Tensor):
            sample.input = sample.input.detach().conj().requires_grad_(grad)
            yield sample


def applies(op: Any, dtype: torch.dtype, kind: str) -> bool:
    """Whether PyTorch says that this can be asked of the operator."""
    if kind == "error":
        return op.error_inputs_func is not None and dtype == torch.float32
    if dtype not in op.dtypes:
        return False
    if kind.endswith("gradient"):
        numbers = dtype.is_floating_point or dtype.is_complex
        has = op.supports_autograd and dtype in op.backward_dtypes
        twice = kind == "gradient" or op.supports_gradgrad
        return bool(has and numbers and twice)
    if kind in OUTPUTS:
        return bool(op.supports_out)
    return kind != "in-place" or op.inplace_variant is not None


def calls(op: Any, kind: str, sample: Any) -> Iterator[Call]:
    """The calls to compare, each with its arguments."""
    arguments = (sample.input, list(sample.args), dict(sample.kwargs))
    if kind == "in-place":
        yield plain(op.inplace_variant), arguments
    elif kind.endswith("gradient"):
        order = 1 if kind == "gradient" else 2
        finish = sample.output_process_fn_grad
        yield with_gradients(op, finish, order), arguments
    elif kind in OUTPUTS:
        results = plain(op)(tree_map(Mover("cpu"), arguments))
        if all(isinstance(result, Tensor) for result in tree_leaves(results)):
            for make in OUTPUTS[kind]:
                out = tree_map(make, results)
                yield with_out(op, type(results)), (arguments, out)
    else:
        yield plain(op), arguments


@contextmanager
def by_the_book() -> Iterator[None]:
    """One thread, and each warning each time, but not those of samples."""
    device()  # which draws numbers when it is first asked for
    threads, always = torch.get_num_threads(), torch.is_warn_always_enabled()
    torch.set_num_threads(1)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_warn_always(always)


def probe(
    mode: probes.Probe, op: Any, dtype: torch.dtype, form: str, count: int
) -> None:
    """Makes the calls of an entry on the device, under a mode."""
    for sample in islice(samples(op, dtype, form), count):
        for call, arguments in calls(op, form, sample):
            moved = tree_map(Mover(device().name), arguments)
            torch.manual_seed(7)
            # What is refused here is another kind's question.
            with suppress(Exception), mode:
                call(moved)


def compared(
    calls: Iterable[Call], values: bool = True
) -> tuple[int, list[str]]:
    """How many calls there were, and what differed."""
    asked, found = 0, list[str]()
    with by_the_book():
        for call, arguments in calls:
            asked += 1
            found += faults(call, arguments, values)
    return asked, list(dict.fromkeys(found))


def check(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """How many calls of an entry were compared, and what differed."""
    if kind == "mixed-devices":
        return probed(probes.MixedDevices(), name, dtype, count)
    op = ENTRIES[name]
    asked = (
        (on_host_again(name, call), arguments)
        for sample in islice(samples(op, getattr(torch, dtype), kind), count)
        for call, arguments in calls(op, kind, sample)
    )
    return compared(asked, op.name not in UNINITIALIZED)


def probed(
    mode: probes.Probe, name: str, dtype: str, count: int
) -> tuple[int, list[str]]:
    """What a mode has asked of the operators that an entry's calls reach."""
    op, of = ENTRIES[name], getattr(torch, dtype)
    with by_the_book():
        for form in ("forward", "in-place", "out", "gradient"):
            if applies(op, of, form):
                probe(mode, op, of, form, count)
    return mode.asked, sorted(mode.faults)


def questions(
    kinds: Sequence[str] = tuple(KINDS), dtypes: Sequence[str] = tuple(DTYPES)
) -> Iterator[Question]:
    for dtype, kind in product(dtypes, kinds):
        for name, op in ENTRIES.items():
            if applies(op, getattr(torch, dtype), kind):
                yield Question(name, dtype, kind)
