"""One entry of PyTorch's operator database, asked of the CPU and the device.

Both get equal arguments, laid out alike in storages of equal size, and equal
seeds. What comes of the call must be equal, too: values, dtype, strides, what
shares memory with what, warnings, the error, and the state of the generator.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from torch_openreg import openreg

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # hypothesis is optional
    from torch.testing._internal.common_methods_invocations import op_db
# That import forbids to set torch.backends.* for the rest of the process.
torch.backends.__allow_nonbracketed_mutation_flag = True

ENTRIES = {
    f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op
    for op in op_db
}
KINDS = [
    "forward",
    "strided",  # with arguments that are not contiguous
    "out",
    "out-strided",  # with an `out=` whose strides must stay
    "out-dtype",  # with an `out=` of another dtype than the result's
    "in-place",
    "gradient",
    "error",
    "lazy-clone",
    "guarded-out",
    "guarded-arguments",
    "elsewhere",
]
DTYPES = ["float32", "float64", "bfloat16", "int64", "bool", "complex64"]

# Kinds that a mode of _probes asks of each operator that the calls reach.
PROBES = {
    "lazy-clone": "LazyClones",
    "guarded-out": "GuardedOutputs",
    "guarded-arguments": "GuardedArguments",
    "elsewhere": "Elsewhere",
}

# Their results hold whatever was in memory.
UNINITIALIZED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
# The first such tensor of a process warns, wherever it is made.
SAID_ONCE = "Sparse CSR tensor support is in beta"
# PyTorch wants this argument on the host, whatever the device.
HOST_ARGUMENTS = {"tensor_split"}


class Mover:
    """Copies arguments to a device, with all that they share."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.tensors: dict[int, Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.device.type != "cpu":
                return value  # of the meta device
            known = self.tensors.get(id(value))
            if known is None:
                known = self.move(value).requires_grad_(value.requires_grad)
                self.tensors[id(value)] = known
            return known
        if isinstance(value, torch.Generator):
            moved = torch.Generator(self.device)
            moved.set_state(value.get_state())
            return moved
        if isinstance(value, torch.device):
            return torch.device(self.device)
        return (
            self.device if isinstance(value, str) and value == "cpu" else value
        )

    def move(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            return tensor.to(self.device, copy=True)
        if tensor.is_conj():
            return self.move(tensor.conj()).conj()
        if tensor.is_neg():
            return self.move(tensor._neg_view())._neg_view()
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            copy = whole.to(self.device, copy=True).untyped_storage()
            self.storages[storage._cdata] = copy
        return torch.empty(0, dtype=tensor.dtype, device=self.device).set_(
            self.storages[storage._cdata],
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )


class Outcome(NamedTuple):
    arguments: list[Any]
    results: list[Any]
    error: str
    warnings: list[str]
    drawn: Tensor  # the state of the device's generator
    untouched: bool  # whether the other generator is as it was


# Of a dtype that is not taken, the CPU names the kernel, ours the operator.
NOT_TAKEN = re.compile(
    r"(\"\w+\"|cpu: '\S+' is) (not implemented for '\w+')( on cpu)?"
)


def impersonal(text: str) -> str:
    """A message without the name of the device."""
    text = re.sub(r"openreg(:\d)?", "cpu", text).replace("cpu:0", "cpu")
    text = NOT_TAKEN.sub(r"\2", text)
    text = re.sub(r"0x[0-9a-f]+|Value: .*", "...", text, flags=re.DOTALL)
    return text.replace("PrivateUse1", "cpu").replace("CPU", "cpu")


def ask(call: Callable[[Any], Any], arguments: Any, device: str) -> Outcome:
    """What comes of `call` on this device."""
    moved = tree_map(Mover(device), arguments)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    error, results = "", None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            results = call(moved)
            if device != "cpu":
                openreg.synchronize()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
    host = torch.get_rng_state()
    if device == "cpu":
        drawn, untouched = host, True
    else:
        drawn = openreg.get_rng_state()
        untouched = host.equal(before)
    lines = {f"{w.category.__name__}: {w.message}" for w in said}
    return Outcome(
        tree_leaves(moved),
        tree_leaves(results),
        impersonal(error),
        sorted({impersonal(x) for x in lines if SAID_ONCE not in x}),
        drawn,
        untouched,
    )


def sharing(outcome: Outcome) -> list[Any]:
    """Which values are one object, and which are one storage, and where."""
    numbers: dict[Any, int] = {}

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    found: list[Any] = []
    for value in outcome.arguments + outcome.results:
        if not isinstance(value, Tensor):
            found.append(None)
        elif value.layout != torch.strided:
            found.append(number(("object", id(value))))
        else:
            storage = value.untyped_storage()._cdata
            found.append(
                (
                    number(("object", id(value))),
                    number(("storage", storage)),
                    value.storage_offset(),
                )
            )
    return found


def identical(ours: Tensor, theirs: Tensor) -> bool:
    if theirs.layout != torch.strided or theirs.dtype == torch.complex32:
        return False
    return ours.equal(theirs)


def differences(got: Any, expected: Any, values: bool) -> Iterator[str]:
    """How one value differs from the CPU's."""
    if not isinstance(expected, Tensor):
        same = got == expected or (got != got and expected != expected)
        if not same and isinstance(expected, (float, complex)):
            same = torch.allclose(torch.tensor(got), torch.tensor(expected))
        if impersonal(str(got)) != impersonal(str(expected)) and not same:
            yield f"value: {got!r}, not {expected!r}"
        return
    if not isinstance(got, Tensor):
        yield f"value: {type(got)}"
        return
    for name in ("dtype", "shape", "layout", "requires_grad"):
        ours, theirs = getattr(got, name), getattr(expected, name)
        if ours != theirs:
            yield f"{name}: {ours}, not {theirs}"
            return
    if got.layout == torch.strided:
        if got.stride() != expected.stride():
            yield f"strides: {got.stride()}, not {expected.stride()}"
        bits = (got.is_conj(), got.is_neg())
        if bits != (expected.is_conj(), expected.is_neg()):
            yield f"conjugate and negative: {bits}"
    ours, theirs = got.detach().cpu(), expected.detach()
    if values and not identical(ours, theirs):
        try:
            torch.testing.assert_close(
                ours, theirs, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            yield "value: " + " ".join(str(error).split())[:200]


def names_device(value: Any) -> bool:
    if isinstance(value, (Tensor, torch.Generator)):
        value = value.device
    return str(value).startswith("openreg")


def is_elsewhere(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "cpu"


def different_values(
    device: Outcome, host: Outcome, values: bool
) -> Iterator[str]:
    if any(map(is_elsewhere, device.results)) and any(
        map(names_device, device.arguments)
    ):
        yield "device: a result is elsewhere"
    for name in ("arguments", "results"):
        got, expected = getattr(device, name), getattr(host, name)
        if len(got) != len(expected):
            yield f"{name}: {len(got)}, not {len(expected)}"
            continue
        for index, pair in enumerate(zip(got, expected, strict=True)):
            for difference in differences(*pair, values):
                yield f"{name[:-1]} {index}: {difference}"
    if sharing(device) != sharing(host):
        yield f"sharing: {sharing(device)}, not {sharing(host)}"


def faults(
    call: Callable[[Any], Any], arguments: Any, values: bool = True
) -> Iterator[str]:
    """How what comes of `call` on the device differs from the CPU."""
    host = ask(call, arguments, "cpu")
    device = ask(call, arguments, "openreg")
    if device.error != host.error:
        ours, theirs = device.error or "none", host.error or "none"
        yield f"error: {ours[:300]} -- the CPU's is: {theirs[:300]}"
    elif not host.error:
        # After an error the CPU may have resized what it did not write.
        yield from different_values(device, host, values)
    if device.warnings != host.warnings:
        yield f"warnings: {device.warnings}, not {host.warnings}"
    if not device.drawn.equal(host.drawn):
        yield "generator: another state than the CPU's"
    if not device.untouched:
        yield "generator: the CPU's has moved"


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


def with_gradients(op: Any, finish: Callable[[Any], Any]) -> Callable[..., Any]:
    """The derivatives of all results by all arguments."""

    def call(sample: Any) -> Any:
        inputs = [
            leaf
            for leaf in tree_leaves(sample)
            if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        outputs = [
            leaf
            for leaf in tree_leaves(finish(plain(op)(sample)))
            if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        weights = [
            (torch.arange(o.numel()).remainder(7).add(1) / 4)
            .to(o.dtype)
            .reshape(o.shape)
            .to(o.device)
            for o in outputs
        ]
        if not outputs:
            return None
        return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)

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
    grad = kind == "gradient"
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
    if kind == "gradient":
        numbers = dtype.is_floating_point or dtype.is_complex
        has = op.supports_autograd and dtype in op.backward_dtypes
        return bool(has and numbers)
    if kind in OUTPUTS:
        return bool(op.supports_out)
    return kind != "in-place" or op.inplace_variant is not None


def calls(op: Any, kind: str, sample: Any) -> Iterator[tuple[Any, Any]]:
    """The calls to compare, each with its arguments."""
    arguments = (sample.input, list(sample.args), dict(sample.kwargs))
    if kind == "in-place":
        yield plain(op.inplace_variant), arguments
    elif kind == "gradient":
        yield with_gradients(op, sample.output_process_fn_grad), arguments
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
    mode: Any, op: Any, dtype: torch.dtype, form: str, count: int
) -> None:
    """Makes the calls of an entry on the device, under a mode."""
    for sample in islice(samples(op, dtype, form), count):
        for call, arguments in calls(op, form, sample):
            moved = tree_map(Mover("openreg"), arguments)
            torch.manual_seed(7)
            # What is refused here is another kind's question.
            with suppress(Exception), mode:
                call(moved)


def check(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """How many calls were compared, and what differed."""
    op = ENTRIES[name]
    found: list[str] = []
    asked = 0
    if kind in PROBES:
        import _probes  # not above: the book reads this file by itself

        mode = getattr(_probes, PROBES[kind])()
        with by_the_book():
            for form in ("forward", "in-place", "out", "gradient"):
                if applies(op, getattr(torch, dtype), form):
                    probe(mode, op, getattr(torch, dtype), form, count)
        return mode.asked, sorted(mode.faults)
    with by_the_book():
        for sample in islice(samples(op, getattr(torch, dtype), kind), count):
            for call, arguments in calls(op, kind, sample):
                asked += 1
                values = op.name not in UNINITIALIZED
                found += faults(on_host_again(name, call), arguments, values)
    return asked, list(dict.fromkeys(found))
