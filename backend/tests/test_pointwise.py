"""Pointwise operators that are not worth an alias, against the CPU's bits."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

# Half precision with complex numbers is experimental, PyTorch warns.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
OTHERS = [torch.int64, torch.int8, torch.bool, torch.complex64]
NUMBERS = [0, 3, -2, 0.1, -1e300, float("nan"), 2**53 + 1, True, 1 + 2j]

BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "from the left": lambda x, y: y * x,
    "rsub": lambda x, y: y - x,
    "add_": lambda x, y: x.clone().add_(y),
    "sub_": lambda x, y: x.clone().sub_(y),
    "mul_": lambda x, y: x.clone().mul_(y),
    "div_": lambda x, y: x.clone().div_(y),
    "alpha": lambda x, y: torch.add(x, y, alpha=2),
    "foreach": lambda x, y: torch._foreach_mul([x], y)[0],
    "foreach_": lambda x, y: foreach(x.clone(), y),
    "out": lambda x, y: torch.mul(x, y, out=x.clone()),
}
TERNARY = {
    "lerp_": lambda x, y, z: x.clone().lerp_(y, 0.3),
    "addcmul_": lambda x, y, z: x.clone().addcmul_(y, z, value=-0.5),
    "addcdiv_": lambda x, y, z: x.clone().addcdiv_(y, z, value=-0.5),
    "sqrt": lambda x, y, z: x.sqrt(),
    "relu's gradient": lambda x, y, z: torch.ops.aten.threshold_backward(
        x, y, 0.5
    ),
}


def foreach(x: Tensor, number: object) -> Tensor:
    torch._foreach_mul_([x], number)
    return x


def outcome(compute, *operands: object) -> Tensor | str:
    """The result, or the error's type and message without the device's."""
    try:
        result = compute(*operands)
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        return f"{type(error).__name__}: {text}".replace("openreg:0", "cpu")
    return result


def same_outcome(compute, *operands: object) -> None:
    expected = outcome(compute, *operands)
    on_device = [x.to("openreg") if is_data(x) else x for x in operands]
    got = outcome(compute, *on_device)
    if isinstance(expected, str):
        # What an alias kernel refuses, it refuses by the operator's name.
        dtype = re.escape(expected.rpartition(" not implemented for ")[2])
        ours = rf"openreg: 'aten::\w+' is not implemented for {dtype} on cpu"
        own = isinstance(got, str) and re.fullmatch(
            f"NotImplementedError: {ours}", got
        )
        assert own or got == expected
        return
    assert got.device.type == "openreg"
    assert got.stride() == expected.stride()
    torch.testing.assert_close(
        got.cpu(), expected, rtol=0, atol=0, equal_nan=True
    )


def is_data(operand: object) -> bool:
    return isinstance(operand, Tensor) and operand.dim() > 0


def values(dtype: torch.dtype) -> Tensor:
    return torch.tensor([[0, 1, -3], [7, 2, 5]]).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS + OTHERS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_numbers_are_converted_as_on_the_cpu(name, dtype) -> None:
    for number in NUMBERS:
        same_outcome(BINARY[name], values(dtype), number)


@pytest.mark.parametrize("dtype", FLOATS + OTHERS, ids=str)
def test_a_tensor_without_dimensions_keeps_its_dtype(dtype) -> None:
    scalar = torch.tensor(3).to(dtype)
    for number in NUMBERS:
        expected = scalar * number
        got = (scalar.to("openreg") * number).cpu()
        torch.testing.assert_close(
            got, expected, rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("other", [*FLOATS, *OTHERS], ids=str)
@pytest.mark.parametrize("name", ["add", "rsub", "div", "mul_"])
def test_host_scalars_are_converted_as_on_the_cpu(name, other) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        same_outcome(BINARY[name], values(dtype), torch.tensor(3).to(other))


@pytest.mark.parametrize("dtype", FLOATS + OTHERS, ids=str)
@pytest.mark.parametrize("name", TERNARY)
def test_a_training_steps_operators_are_the_cpus(name, dtype) -> None:
    x = values(dtype)
    same_outcome(TERNARY[name], x, x.flip(0), x.flip(1))
    strided = values(dtype).t().contiguous().t()
    same_outcome(TERNARY[name], strided, x, x[:1])


@pytest.mark.parametrize("name", ["lerp_", "addcmul_", "addcdiv_"])
def test_mixed_dtypes_are_the_cpus(name) -> None:
    x = values(torch.float32)
    for dtype in (torch.float64, torch.int64):
        same_outcome(TERNARY[name], x, x.to(dtype), x)


def test_an_operand_of_another_device_is_refused() -> None:
    x = torch.ones(3, device="openreg")
    for other in (torch.ones(3), torch.ones(3, device="openreg:1")):
        for call in (x.div_, x.addcmul_, x.addcdiv_):
            operands = (other,) if call == x.div_ else (x, other)
            with pytest.raises(RuntimeError, match="on the same device"):
                call(*operands)
        with pytest.raises(RuntimeError, match="on the same device"):
            x.lerp_(other, 0.5)
    assert x.sum().item() == 3


def test_a_result_is_written_through_a_view() -> None:
    host, device = values(torch.float32), values(torch.float32).to("openreg")
    for x in (host, device):
        x.t()[1].div_(2).lerp_(x.t()[0], 0.25).addcmul_(x.t()[2], x.t()[0])
        x[:, ::2] *= 3
    assert device.cpu().equal(host)


def test_a_product_that_is_its_own_operand_keeps_its_shape() -> None:
    x = torch.ones(3, device="openreg")
    wide = torch.ones(2, 3, device="openreg")
    with pytest.raises(RuntimeError, match=r"output with shape \[3\]"):
        torch.mul(wide, x, out=x)
    assert torch.mul(x, 2, out=x).cpu().tolist() == [2, 2, 2]


@pytest.mark.queued
def test_they_are_queued_behind_pending_work(hold, side) -> None:
    host = values(torch.float32)
    x = host.to("openreg")
    gate = hold()
    y = chain(x)
    assert not side.query()
    gate.open()
    assert y.cpu().equal(chain(host))


def chain(x: Tensor) -> Tensor:
    y = (x * 2).div_(3).lerp_(x, 0.5).addcmul_(x, x, value=0.1)
    y.addcdiv_(x, x + 20, value=-0.1)
    torch._foreach_mul_([y], 1.5)
    return torch.ops.aten.threshold_backward((y + 20).sqrt(), x, 0)


def test_complex_numbers_are_divided_in_place_as_on_the_cpu() -> None:
    cpu = torch.tensor([1 + 2j, 3 - 4j])
    device = cpu.to("openreg")
    device.div_(2 - 1j)
    assert torch.equal(device.cpu(), cpu.div_(2 - 1j))


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("elements", [5, 20])
@pytest.mark.parametrize("turned", [False, True])
def test_an_out_of_another_shape_is_resized_as_on_the_cpu(
    elements: int, turned: bool
) -> None:
    def add(device: str) -> torch.Tensor:
        x = torch.arange(12.0).reshape(3, 4).to(device)
        x = x.t() if turned else x
        out = torch.ones(elements, device=device)
        return torch.add(x, x, out=out)

    cpu, device = add("cpu"), add("openreg")
    assert torch.equal(device.cpu(), cpu)
    assert device.stride() == cpu.stride()
