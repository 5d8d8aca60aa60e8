"""One call, made on the CPU and on the device: the same must come of it.

Both get equal arguments, laid out alike in storages of equal size, and equal
seeds. What comes of the call must be equal, too: values, dtype, strides, what
shares memory with what, warnings, the error, and the state of the generator.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# The first such tensor of a process warns, wherever it is made.
SAID_ONCE = "Sparse CSR tensor support is in beta"
# How far values of a dtype may be apart, where PyTorch's own limits do not fit
# the device: relative and absolute.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {}


class Device:
    """The device, and what a comparison asks of it; it may lack any of that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module: Any = getattr(torch, name, None)
        self.waits = works(torch.accelerator.synchronize)
        self.generates = works(lambda: self.module.get_rng_state())
        self.draws_as_cpu = works(self.draw)
        second = f"{name}:1"
        there = works(lambda: torch.empty(1, device=second))
        self.others = ["cpu", *[second] * there]  # than the first

    def synchronize(self) -> None:
        if self.waits:
            torch.accelerator.synchronize()

    def rng_state(self) -> Tensor | None:
        """The state of its generator, if it has one."""
        return self.module.get_rng_state() if self.generates else None

    def set_rng_state(self, state: Tensor | None) -> None:
        if state is not None:
            self.module.set_rng_state(state)

    def draw(self) -> None:
        """Raises unless a seed gives the numbers that it gives the CPU."""
        found = []
        for device in ("cpu", self.name):
            torch.manual_seed(7)
            found.append(torch.rand(4, device=device).cpu())
        torch.testing.assert_close(*found, rtol=0, atol=0)


def works(use: Callable[[], Any]) -> bool:
    try:
        use()
    except Exception:
        return False
    return True


@cache
def device() -> Device:
    """That of this process, once its backend is loaded."""
    return Device(torch._C._get_privateuse1_backend_name())


class Copier:
    """Copies tensors among arguments, with all that they share."""

    def __init__(self, copy: Callable[[Tensor], Tensor]) -> None:
        self.copy = copy
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, value: Any) -> Any:
        if not self.takes(value):
            return value
        if id(value) not in self.pairs:
            self.pairs[id(value)] = (value, self.twin(value))
        return self.pairs[id(value)][1]

    def takes(self, value: Any) -> bool:
        raise NotImplementedError

    def twin(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            return self.copy(tensor)
        if tensor.is_conj():
            return self.twin(tensor.conj()).conj()
        if tensor.is_neg():
            return self.twin(tensor._neg_view())._neg_view()
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            whole = tensor
            if not tensor.is_contiguous() or tensor.nbytes != storage.nbytes():
                flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                whole = flat.set_(storage)
            copy = self.copy(whole)
            self.storages[storage._cdata] = copy.untyped_storage()
            if whole is tensor:
                return copy
        there = self.storages[storage._cdata]
        empty = torch.empty(0, dtype=tensor.dtype, device=there.device)
        place = tensor.storage_offset(), tensor.shape, tensor.stride()
        return empty.set_(there, *place)


class Mover(Copier):
    """Copies arguments from the CPU to a device."""

    def __init__(self, device: str) -> None:
        super().__init__(lambda tensor: tensor.to(device, copy=True))
        self.device = device

    def takes(self, value: Any) -> bool:  # and leaves the meta device alone
        return isinstance(value, Tensor) and value.device.type == "cpu"

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            moved: Tensor = super().__call__(value)
            same = moved is value or moved.requires_grad == value.requires_grad
            return moved if same else moved.requires_grad_()
        if isinstance(value, torch.Generator):  # a state fits its own device
            return torch.Generator(self.device).manual_seed(
                value.initial_seed()
            )
        if isinstance(value, torch.device):
            return torch.device(self.device)
        return (
            self.device if isinstance(value, str) and value == "cpu" else value
        )


class Outcome(NamedTuple):
    """What came of a call."""

    arguments: list[Any]
    results: list[Any]
    error: str
    warnings: list[str]
    drawn: Tensor | None  # the state of the device's generator
    moved: bool  # whether that is another one than before
    random: bool  # whether the results may be, as far as was looked
    untouched: bool  # whether the other generator is as it was


# Of a dtype that is not taken, the CPU names the kernel; a backend may name
# the operator.
NOT_TAKEN = re.compile(
    r"(\"\w+\"|cpu: '\S+' is) (not implemented for '\w+')( on cpu)?"
)


def impersonal(text: str) -> str:
    """A message without the name of the device."""
    text = re.sub(rf"{device().name}(:\d)?", "cpu", text)
    text = NOT_TAKEN.sub(r"\2", text.replace("cpu:0", "cpu"))
    text = re.sub(r"0x[0-9a-f]+|Value: .*", "...", text, flags=re.DOTALL)
    return text.replace("PrivateUse1", "cpu").replace("CPU", "cpu")


class Draws(TorchDispatchMode):
    """Notes draws, also of entries that put the generator's state back."""

    noted = False

    def __torch_dispatch__(self, func: Any, *call: Any) -> Any:
        _, args, kwargs = call
        given = [x for x in tree_leaves(call) if isinstance(x, torch.Generator)]
        before = [x.get_state() for x in (torch.default_generator, *given)]
        found = func(*args, **kwargs)
        after = [x.get_state() for x in (torch.default_generator, *given)]
        self.noted |= not all(map(torch.equal, before, after))
        return found


def ask(call: Callable[[Any], Any], arguments: Any, where: str) -> Outcome:
    """What comes of `call` on this device, or on the CPU."""
    draws = Draws()  # type: ignore[no-untyped-call]
    looks = where == "cpu" and not device().draws_as_cpu
    moved = tree_map(Mover(where), arguments)
    torch.manual_seed(7)
    host = torch.get_rng_state()
    there = None if where == "cpu" else device().rng_state()
    error, results = "", None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with draws if looks else nullcontext():
                results = call(moved)
            if where != "cpu":
                device().synchronize()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
    host_now = torch.get_rng_state()
    before, drawn = there, device().rng_state()
    if where == "cpu":
        before, drawn = host, host_now
    lines = {f"{w.category.__name__}: {w.message}" for w in said}
    return Outcome(
        tree_leaves(moved),
        tree_leaves(results),
        impersonal(error),
        sorted({impersonal(x) for x in lines if SAID_ONCE not in x}),
        drawn,
        drawn is not None and before is not None and not drawn.equal(before),
        draws.noted,
        where == "cpu" or host_now.equal(host),
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


def apart(ours: Tensor, theirs: Tensor) -> str:
    """Nothing if both are as close as their dtype allows, or else why not."""
    near, far = TOLERANCES.get(theirs.dtype, (None, None))
    try:
        torch.testing.assert_close(
            *(ours, theirs),
            rtol=near,
            atol=far,
            equal_nan=True,
            check_stride=False,
        )
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


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
    if values and not identical(ours, theirs) and (why := apart(ours, theirs)):
        yield f"value: {why[:200]}"


def names_device(value: Any) -> bool:
    if isinstance(value, (Tensor, torch.Generator)):
        value = value.device
    return str(value).startswith(device().name)


def different_values(
    ours: Outcome, host: Outcome, values: bool
) -> Iterator[str]:
    on_host = [x for x in ours.results if isinstance(x, Tensor) and x.is_cpu]
    if on_host and any(map(names_device, ours.arguments)):
        yield "device: a result is elsewhere"
    for name in ("arguments", "results"):
        got, expected = getattr(ours, name), getattr(host, name)
        if len(got) != len(expected):
            yield f"{name}: {len(got)}, not {len(expected)}"
            continue
        for index, pair in enumerate(zip(got, expected, strict=True)):
            for difference in differences(*pair, values):
                yield f"{name[:-1]} {index}: {difference}"
    if sharing(ours) != sharing(host):
        yield f"sharing: {sharing(ours)}, not {sharing(host)}"


def different_errors(ours: str, theirs: str) -> Iterator[str]:
    """How an error differs: what it is, or merely what it says."""
    if ours != theirs:
        kinds = {error.partition(":")[0] for error in (ours, theirs)}
        what = "message" if len(kinds) == 1 else "error"
        ours, theirs = ours or "none", theirs or "none"
        yield f"{what}: {ours[:300]} -- the CPU's is: {theirs[:300]}"


def different_draws(ours: Outcome, host: Outcome) -> Iterator[str]:
    """Where other numbers are drawn than on the CPU, but as often."""
    if ours.drawn is None or host.drawn is None:
        if host.moved:
            yield "generator: it has no state"
    elif not device().draws_as_cpu:
        if ours.moved != host.moved:
            yield f"generator: it has {'not ' * host.moved}moved"
    elif not ours.drawn.equal(host.drawn):
        yield "generator: another state than the CPU's"
    if not ours.untouched:
        yield "generator: the CPU's has moved"


def faults(
    call: Callable[[Any], Any], arguments: Any, values: bool = True
) -> Iterator[str]:
    """How what comes of `call` on the device differs from the CPU."""
    host = ask(call, arguments, "cpu")
    ours = ask(call, arguments, device().name)
    yield from different_errors(ours.error, host.error)
    if not ours.error and not host.error:
        # After an error the CPU may have resized what it did not write.
        yield from different_values(ours, host, values and not host.random)
    if ours.warnings != host.warnings:
        yield f"warnings: {ours.warnings}, not {host.warnings}"
    yield from different_draws(ours, host)
