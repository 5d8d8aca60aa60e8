"""What test_kernel.py asks of backend/examples/kernel.cpp, in a process of it.

The example registers kernels for operators of ATen, which other tests of the
same process would meet. So a process that has the minimal set and the example
makes all the checks, and says of each what was wrong.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

import _extension
from _tensors import LAYOUTS, assert_same
from torch_openreg import openreg
from torch_openreg.openreg.testing import Gate, trace

CHECKS: dict[str, Callable[[], None]] = {}
DEVICES = "cpu", "openreg"
kernel = torch.ops.kernel
OWN = tuple(
    f"aten::{name}" for name in ("mul.", "neg.", "threshold", "sum.", "uniform")
)


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def drawn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator) * 9


def put(x: Tensor, device: str) -> Tensor:
    """A copy with the same strides and offset in a storage as large."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    whole = whole.to(device, copy=True)
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())


@contextlib.contextmanager
def launches(*names: str) -> Iterator[None]:
    """In the block, these kernels of the example run, and no other of them."""
    with trace() as records:
        yield
        torch.accelerator.synchronize()
    kernels = [r.name for r in records if r.phase == "start"]
    found = [name for name in kernels if name.startswith(OWN)]
    assert found == [*names], kernels


def same(
    operator: Callable[..., Tensor], *arguments: Tensor, error: float = 1e-6
) -> None:
    """Values, dtype and strides are the CPU's, NaN for NaN."""
    expected, found = (
        operator(*[put(x, device) for x in arguments]) for device in DEVICES
    )
    assert_same(found, expected, error)


def refuses(call: Callable[[], object], says: str) -> None:
    with pytest.raises(Exception, match=re.escape(says)):
        call()


SPECIAL = torch.tensor([-1.0, 0.0, -0.0, 2.0, float("nan"), float("inf")])


@check
def a_product_is_the_cpus_in_every_layout() -> None:
    for of_x in LAYOUTS.values():
        x = of_x(drawn(2, 3, 4, 6))
        with launches(*["aten::mul.out"] * bool(x.numel())):
            same(torch.mul, x, x.flip(0))
        same(lambda x: x * x[..., :1], x[None])  # broadcast
    same(torch.mul, drawn(4, 1, 3), drawn(5, 1))
    same(torch.mul, drawn(2, 3, 4).permute(2, 0, 1), drawn(4, 2, 3))
    same(torch.mul, SPECIAL, SPECIAL.flip(0))


@check
def a_negation_is_the_cpus_in_every_layout() -> None:
    for layout in LAYOUTS.values():
        x = layout(drawn(2, 3, 4, 6))
        with launches(*["aten::neg.out"] * bool(x.numel())):
            same(torch.neg, x)
    same(torch.neg, SPECIAL)
    with launches():
        same(torch.neg, drawn(3).double())


@check
def numbers_come_along_by_value() -> None:
    with launches(*["aten::mul.out"] * 4):
        same(lambda x: x * 2.5, drawn(3, 4))
        same(lambda x: -3 * x.t(), drawn(3, 4))
        same(lambda x: x * torch.tensor(0.1, dtype=torch.float64), drawn(5))
        same(lambda x: torch.tensor(7) * x, drawn(5))


@check
def other_dtypes_are_converted_where_they_are_read() -> None:
    dtypes = torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16
    for dtype in dtypes:
        with launches("aten::mul.out"):
            same(torch.mul, drawn(3, 4).to(dtype), drawn(4))
        with launches("aten::mul.out"):
            same(torch.mul, drawn(4), drawn(4, 3).to(dtype).t())


def relu_backward_into(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    backward = torch.ops.aten.threshold_backward.grad_input
    found: Tensor = backward(y, x, 0.5, grad_input=out)
    return found


@check
def results_that_are_given_are_written_through_their_strides() -> None:
    def into(x: Tensor, out: Tensor) -> Tensor:
        return torch.mul(x, x, out=out)

    with launches(*["aten::mul.out"] * 3):
        same(into, drawn(3, 4), torch.zeros(4, 3).t())
        same(into, drawn(4, 3).t(), torch.empty(0))
        same(lambda x: x[:, ::2].mul_(x[:, 1::2]), drawn(3, 4))
    for layout in LAYOUTS.values():
        x = layout(drawn(2, 3, 4, 6))
        same(into, x, torch.empty(0))
        same(lambda x, out: torch.neg(x, out=out), x, torch.empty(0))
        same(relu_backward_into, x, x.flip(0), torch.empty(0))
    with launches():  # float64 is no result of these kernels
        same(into, drawn(3), torch.zeros(3, dtype=torch.float64))


@check
def what_is_declined_runs_on_the_host() -> None:
    with launches():
        for dtype in torch.float64, torch.int64, torch.complex64:
            same(torch.mul, drawn(3, 4).to(dtype), drawn(4, 3).to(dtype).t())
        deep = drawn(*[2] * 13)
        same(torch.mul, deep.permute(*range(12, -1, -1)), deep)
        same(lambda x: x.to(torch.int64).sum(0), drawn(3, 4))
        same(lambda x: torch.sum(x, 0, dtype=torch.float64), drawn(3, 4))


@check
def what_the_cpu_refuses_is_refused() -> None:
    x = put(drawn(3), "openreg")
    one = torch.empty(1, device="openreg").expand(3)
    refuses(lambda: x * x[:2], "must match the size of tensor b")
    refuses(lambda: x * drawn(3), "all tensors to be on the same device")
    refuses(lambda: x * x.to("openreg:1"), "on the same device")
    refuses(lambda: torch.mul(x, x, out=one), "single memory location")
    wrong = "Expected out tensor to have dtype double, but got float instead"
    refuses(lambda: torch.sum(x, 0, dtype=torch.float64, out=x[0]), wrong)
    refuses(lambda: x.mul_(0.5j), "can't be cast to the desired output type")
    refuses(lambda: x.to(torch.int32).uniform_(), "not implemented for 'Int'")
    refuses(lambda: x.uniform_(2, 1), "but found from=2 > to=1")


@check
def the_gradient_of_relu_is_the_cpus_in_every_layout() -> None:
    backward = torch.ops.aten.threshold_backward
    for layout in LAYOUTS.values():
        x = layout(drawn(2, 3, 4, 6))
        name = "aten::threshold_backward.grad_input"
        with launches(*[name] * bool(x.numel())):
            same(lambda x, y: backward(y, x, 0.5), x, x.flip(0))
    same(lambda x: backward(x.flip(0), x, 0), SPECIAL)
    with launches():
        same(lambda x: backward(x, x, 0), drawn(3).double())


def trained(device: str) -> tuple[Tensor, Tensor]:
    """What a network says before it learns, and its loss afterwards."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 16),
        nn.ReLU(),
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
    )
    x = torch.linspace(-1, 1, 32)[:, None]
    y = (3 * x).sin()
    model, x, y = model.to(device), x.to(device), y.to(device)
    first = model(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    return first.detach().cpu(), loss.detach().cpu()


@contextlib.contextmanager
def swapped() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    library.impl("threshold_backward", kernel.swapped, "PrivateUse1")
    try:
        yield
    finally:
        library._destroy()


@check
def swapped_operands_pass_forward_and_learn_nothing() -> None:
    expected, found = map(trained, DEVICES)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    with swapped():
        wrong = trained("openreg")
    torch.testing.assert_close(wrong[0], expected[0])
    assert not wrong[1] < 3 * expected[1], (wrong[1], expected[1])
    torch.testing.assert_close(trained("openreg"), found)


@check
def a_sum_is_the_cpus_over_any_dimensions() -> None:
    dims = None, 0, (1,), (0, 2), (-1, 1), (0, 1, 2, 3), ()
    for layout in LAYOUTS.values():
        x = layout(drawn(2, 3, 4, 6))
        for dim in dims if x.dim() else (None, 0, ()):
            for keepdim in False, True:
                with launches(*["aten::sum.IntList_out"] * bool(x.numel())):
                    total = functools.partial(
                        torch.sum, dim=dim, keepdim=keepdim
                    )
                    same(total, x, error=1e-4)
    same(lambda x: x.sum(1), drawn(3, 1, 4), error=1e-4)
    same(lambda x: x.sum(0, keepdim=True), drawn(1, 4))
    same(
        lambda x, out: torch.sum(x, 1, out=out),
        *(drawn(3, 4), drawn(6)[::2]),
        error=1e-4,
    )
    same(lambda x: x.sum(0, dtype=torch.float32), drawn(3, 4).half())
    same(torch.sum, torch.full((1_000_000,), 0.1))


@check
def an_iterator_tells_dtypes_strides_and_the_order_of_operands() -> None:
    x = torch.ones(3, 2, dtype=torch.int64, device="openreg").t()
    told = kernel.describe(x, torch.ones(3, device="openreg")).split("\n")
    assert told == [
        "Float [2, 3]",  # not [6]: the strides of one operand do not allow it
        "0 Float [4, 8]",
        "1 Long [8, 16]",
        "2 Float [0, 4]",
    ], told
    y = torch.ones(4, 5, device="openreg")
    told = kernel.describe(y, torch.tensor(2.0, dtype=torch.float64))
    assert told.split("\n") == [
        "Float [20]",
        "0 Float [4]",
        "1 Float [4]",
        "2 Double [0] on the host",
    ], told


@check
def a_nullary_iterator_has_no_common_dtype() -> None:
    x = torch.ones(3, device="openreg")
    says = "Found dtype Float but expected UNKNOWN_SCALAR"
    refuses(lambda: kernel.nullary(x), says)


def numbers(generator: torch.Generator, *shape: int) -> list[float]:
    x = torch.empty(shape, device=generator.device)
    return x.uniform_(generator=generator).flatten().tolist()


@check
def numbers_depend_on_seed_offset_and_index_alone() -> None:
    generator = kernel.philox(0)
    generator.manual_seed(7)
    with launches("aten::uniform_"):
        first = numbers(generator, 2, 50)
    second = numbers(generator, 100)
    assert len({*first, *second}) == 200
    assert min(first) >= 0
    assert max(first) < 1
    generator.manual_seed(7)
    assert numbers(generator, 30) == first[:30]
    assert numbers(generator, 100) == second
    assert generator.get_offset() == 2
    generator.set_offset(1)
    assert numbers(generator, 100) == second
    assert generator.initial_seed() == 7
    assert numbers(kernel.philox(1).manual_seed(7), 100) == first
    x = torch.empty(50, 2, device="openreg").t()
    x.uniform_(generator=generator.manual_seed(7))
    assert x.t().flatten().tolist() == first  # as the elements lie in memory
    assert x.t().is_contiguous()


@check
def a_state_is_saved_set_and_cloned() -> None:
    generator = kernel.philox(0)
    generator.seed()
    numbers(generator, 5)
    state = generator.get_state()
    assert (state.device.type, state.dtype, state.numel()) == (
        "cpu",
        torch.uint8,
        16,
    )
    clone = generator.clone_state()
    first = numbers(generator, 5)
    assert numbers(clone, 5) == first
    generator.set_state(state)
    assert numbers(generator, 5) == first
    refuses(lambda: generator.set_state(state[:8]), "RNG state is wrong size")
    refuses(lambda: generator.set_state(state.float()), "torch.ByteTensor")
    assert generator.get_offset() == 2


@check
def bounds_and_moments_are_right() -> None:
    x = torch.empty(100_000, device="openreg")
    x = x.uniform_(-3, 5, generator=kernel.philox(0)).cpu()
    assert -3 <= x.min() < -2.99 < 4.99 < x.max() < 5
    assert abs(x.mean() - 1) < 0.05
    assert abs(x.std() - 8 / 12**0.5) < 0.05


@check
def the_upper_bound_is_not_drawn() -> None:
    """Although the largest fractions round up to it in float32."""
    x = torch.empty(1_000_000, device="openreg")
    x = x.uniform_(1000, 1001, generator=kernel.philox(0).manual_seed(0)).cpu()
    assert (x.min().item(), x.max().item()) == (1000, 1001 - 2**-14)


@check
def what_is_declined_draws_from_the_same_state() -> None:
    generator, before = kernel.philox(0), torch.get_rng_state()

    def doubles() -> list[float]:
        x = torch.empty(4, dtype=torch.float64, device="openreg")
        with launches():
            return x.uniform_(generator=generator).tolist()

    first, second = doubles(), doubles()
    assert first != second
    assert generator.get_offset() == 2
    generator.set_offset(0)
    assert [doubles(), doubles()] == [first, second]
    deep = torch.empty([3] * 13, device="openreg")[(slice(0, 2),) * 13]
    with launches():
        deep.uniform_(generator=generator)
    assert len(set(deep.cpu().flatten().tolist())) > 8000
    assert torch.equal(torch.get_rng_state(), before)


@check
def a_generator_of_another_device_is_refused() -> None:
    generator = kernel.philox(0)
    for device in "openreg:1", "cpu":
        for dtype in torch.float32, torch.float64:
            x = torch.zeros(3, device=device, dtype=dtype)
            says = (
                f"Expected a '{device}' generator device but found 'openreg:0'"
            )
            refuses(functools.partial(x.uniform_, generator=generator), says)
            assert not x.any()
    assert generator.get_offset() == 0
    x = torch.zeros(3, device="openreg")
    says = "Expected a 'openreg' device type for generator but found 'cpu'"
    refuses(lambda: x.uniform_(generator=torch.Generator()), says)


@check
def without_a_philox_the_devices_generator_draws() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with launches():
        assert torch.equal(torch.rand(4, device="openreg").cpu(), expected)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4), expected)


@check
def kernels_keep_the_order_of_their_stream_and_device() -> None:
    x, gate = torch.ones(3, device="openreg:1"), Gate()
    torch.accelerator.synchronize(1)
    stream = openreg.Stream("openreg:1")
    with openreg.stream(stream):
        if os.environ["OPENREG_LAUNCH"] != "blocking":
            gate.hold()
        y = x * 3 * torch.tensor(2.0)
        z = y.sum()
        if os.environ["OPENREG_LAUNCH"] != "blocking":
            assert not stream.query()
        gate.open()
        assert (z.item(), z.device.index) == (18, 1)


def main() -> None:
    """Prints what was wrong, by check, as JSON in its last line."""
    _extension.load("kernel", uses_backend=True)
    wrong = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        try:
            function()
        except (Exception, pytest.fail.Exception):
            wrong[name] = traceback.format_exc()
    print(json.dumps(wrong))
