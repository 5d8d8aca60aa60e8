"""Operators on the device: the CPU's values, dtypes, strides and aliases.

The CPU is the judge. What is written through a view or an `out=` must be seen
through the other name too, and a call that fails must leave the next one well.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from _tensors import assert_same

FALLBACK = torch.openreg.fallback


pytestmark = pytest.mark.usefixtures("no_fallback")


def pair(*shape: int, dtype: torch.dtype = torch.float32):
    host = torch.arange(24).to(dtype).reshape(*shape)
    return host, host.to("openreg")


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "atan2": torch.atan2,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.float32, torch.float32),
        (torch.float64, torch.float32),
        (torch.int64, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.uint8, torch.int64),
    ],
    ids=str,
)
def test_binary_operators_promote_as_on_the_cpu(name, left, right) -> None:
    a, da = pair(4, 6, dtype=left)
    b, db = pair(4, 6, dtype=right)
    assert_same(BINARY[name](da, db), BINARY[name](a, b))


@pytest.mark.parametrize("name", BINARY)
def test_binary_operators_broadcast_and_keep_strides(name) -> None:
    a, da = pair(4, 6)
    b, db = pair(6, 4)
    assert_same(BINARY[name](da.t(), db), BINARY[name](a.t(), b))
    assert_same(BINARY[name](da.t(), db.t().t()), BINARY[name](a.t(), b))
    assert_same(BINARY[name](da, db[0, :1]), BINARY[name](a, b[0, :1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_numbers_and_host_scalars_mix_with_device_tensors(dtype) -> None:
    a, da = pair(4, 6, dtype=dtype)
    assert_same(da + 2, a + 2)
    assert_same(da * 0.1, a * 0.1)
    assert_same(3 - da, 3 - a)
    assert_same(da + torch.tensor(2.5), a + torch.tensor(2.5))


def test_relu_and_its_gradient() -> None:
    host = torch.tensor([-1.0, 0.0, 2.0, float("nan")], requires_grad=True)
    device = host.detach().to("openreg").requires_grad_()
    torch.relu(host).sum().backward()
    torch.relu(device).sum().backward()
    assert_same(torch.relu(device).detach(), torch.relu(host).detach())
    assert_same(device.grad, host.grad)
    with pytest.raises(RuntimeError, match="Boolean inputs not supported"):
        torch.relu(torch.ones(2, dtype=torch.bool, device="openreg"))


@pytest.mark.proves("operators-views")
def test_views_write_through() -> None:
    x = torch.zeros(4, 6, device="openreg")
    x[1].fill_(1)
    x.t()[2].add_(5)
    x.view(24)[-1] = 9
    x.unfold(0, 2, 2)[0, 0, 0] = 7
    x[:, ::2].select(1, 2).mul_(0).sub_(1)
    x.diagonal().copy_(torch.full((4,), 3.0))
    expected = torch.zeros(4, 6)
    expected[1].fill_(1)
    expected.t()[2].add_(5)
    expected.view(24)[-1] = 9
    expected.unfold(0, 2, 2)[0, 0, 0] = 7
    expected[:, ::2].select(1, 2).mul_(0).sub_(1)
    expected.diagonal().copy_(torch.full((4,), 3.0))
    assert_same(x, expected)


def test_complex_views_write_through() -> None:
    z = torch.zeros(3, dtype=torch.complex64, device="openreg")
    torch.view_as_real(z)[1, 1] = 2
    z.real[0] = 4
    assert z.cpu().tolist() == [4, 2j, 0]
    torch.view_as_complex(torch.view_as_real(z)).conj().imag[1] = -3
    assert z.cpu()[1] == 3j


def test_a_boxed_view_aliases_its_argument() -> None:
    # These have CPU kernels, so the alias kernel serves them.
    x = torch.zeros(4, 6, device="openreg")
    for view in (
        torch.ops.aten.alias(x),
        torch.ops.aten.view.dtype(x, torch.int32),
    ):
        assert view.untyped_storage().data_ptr() == x.data_ptr()
        view[0, 0] = 1
        assert x.cpu().view(view.dtype)[0, 0] == 1


def test_in_place_operators_return_the_tensor_itself() -> None:
    x = torch.ones(3, device="openreg")
    assert x.add_(1) is x
    assert torch.ops.aten.exp_(x) is x
    assert x.cpu().equal(torch.full((3,), 2.0).exp_())


def test_out_resizes_and_keeps_the_tensor() -> None:
    a, da = pair(4, 6)
    out = torch.empty(0, device="openreg")
    result = torch.mm(da, da.t(), out=out)
    assert result is out
    assert_same(out, a @ a.t())
    again = out.data_ptr()
    torch.mm(da, da.t(), out=out)
    assert out.data_ptr() == again


def test_out_writes_through_strides() -> None:
    a, da = pair(4, 6)
    base = torch.zeros(4, 12, device="openreg")
    torch.exp(da / 10, out=base[:, ::2])
    assert base[:, 1::2].cpu().eq(0).all()
    torch.testing.assert_close(base[:, ::2].cpu(), torch.exp(a / 10))


def test_out_that_must_not_be_resized_warns_as_on_the_cpu() -> None:
    _, da = pair(4, 6)
    with pytest.warns(UserWarning, match="An output with one or more elements"):
        torch.exp(da, out=torch.ones(3, device="openreg"))


@pytest.mark.parametrize("rows", [0, 2])
def test_in_place_results_never_change_their_shape(rows) -> None:
    # logical_and_ is made of logical_and.out with its tensor passed twice.
    left = torch.zeros(rows, 1, 3, device="openreg")
    right = torch.zeros(rows, 10, 3, device="openreg")
    for operator in (
        torch.Tensor.logical_and_,
        torch.Tensor.logical_xor_,
        torch.Tensor.add_,
    ):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast"):
            operator(left, right)
        assert left.shape == (rows, 1, 3)


def test_kernels_that_know_the_cpu_by_name_run_on_the_device() -> None:
    host = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]])
    values = torch.empty(0, device="openreg")
    indices = torch.empty(0, dtype=torch.int64, device="openreg")
    torch.mode(host.to("openreg"), out=(values, indices))
    expected = torch.mode(host)
    assert_same(values, expected.values)
    assert_same(indices, expected.indices)
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert_same(z.to("openreg").conj_physical_(), z.clone().conj_physical_())
    for arguments in (5,), (5, False), (5, True, 3.0):
        window = torch.kaiser_window(*arguments, device="openreg:1")
        assert_same(window, torch.kaiser_window(*arguments))


def flat(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


def sobol_state(matrix: torch.Tensor) -> torch.Tensor:
    return (matrix.abs() * 9).long().repeat(2, 4)[:, :30].contiguous()


# Called with a matrix and a vector: PyTorch's kernels for all devices.
HOST_BOUND = {
    "choose_qparams_optimized": lambda m, v: (m.flatten(), 32, 200, 0.16, 8),
    "_saturate_weight_to_fp16": lambda m, v: (m * 1e6,),
    "_batch_norm_no_update": lambda m, v: (m, v, v, v, v.exp(), 0.1, 1e-5),
    "_sobol_engine_draw": lambda m, v: (
        *(v.long(), 2, sobol_state(m), 8, 0),
        torch.float32,
    ),
    "_sobol_engine_ff_": lambda m, v: (v.long(), 2, sobol_state(m), 8, 0),
    "_sobol_engine_initialize_state_": lambda m, v: (sobol_state(m), 8),
    "_sobol_engine_scramble_": lambda m, v: (
        sobol_state(m),
        sobol_state(m)[..., None].repeat(1, 1, 30) % 2,
        8,
    ),
}


@pytest.mark.parametrize("name", HOST_BOUND)
def test_kernels_that_read_as_the_host_run_on_the_device(name: str) -> None:
    torch.manual_seed(0)
    m, v = torch.randn(4, 8), torch.randn(8)
    operator = getattr(torch.ops.aten, name)
    expected = operator(*HOST_BOUND[name](m, v))
    moved = [x.to("openreg:1") for x in (m, v)]
    for one, other in zip(
        flat(operator(*HOST_BOUND[name](*moved))), flat(expected), strict=True
    ):
        assert one.device == torch.device("openreg:1")
        assert_same(one, other)


def test_a_range_that_grows_in_place_is_written_on_the_device() -> None:
    out = torch.ones(8, device="openreg")
    assert torch.ops.aten.range.out_(2, 5, out=out[::2]).tolist() == [
        2,
        3,
        4,
        5,
    ]
    assert out.tolist() == [2, 1, 3, 1, 4, 1, 5, 1]


@pytest.mark.proves("messages.calls-fbgemm-which-needs-host-tensors")
def test_operators_of_a_library_for_the_host_are_refused() -> None:
    refusal = "calls FBGEMM, which needs host tensors."
    x = torch.ones(2, 2, device="openreg")
    kinds = {"Tensor": x, "Optional[Tensor]": x, "int": 2, "number": 1.0}
    prefix = "aten::fbgemm_"
    every = torch._C._jit_get_all_schemas()
    schemas = [s for s in every if s.name.startswith(prefix)]
    assert len(schemas) >= 8
    for schema in schemas:
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
        operator = getattr(packet, schema.overload_name or "default")
        arguments = {a.name: kinds[str(a.type)] for a in schema.arguments}
        with pytest.raises(NotImplementedError, match=refusal):
            operator(**arguments)


def test_addr_in_place_knows_that_its_result_is_its_argument() -> None:
    one, two = torch.ones(5, device="openreg"), torch.ones(4, device="openreg")
    scalar = torch.tensor(3.0, device="openreg")
    with pytest.raises(RuntimeError, match="2D tensor expected, got 0D"):
        scalar.addr_(one, two)
    assert scalar.shape == ()
    x = torch.zeros(5, 4, device="openreg")
    assert x.addr_(one, two) is x
    assert x.cpu().eq(1).all()


def test_a_result_that_a_kernel_conjugates_as_a_bit_is_right() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(3, 3, dtype=torch.complex64)
    right = torch.randn(2, 3, dtype=torch.complex64)
    factors, pivots = torch.linalg.lu_factor(matrix)
    arguments = (factors, pivots, right)
    host, out = torch.empty_like(right), torch.empty_like(right).to("openreg")
    torch.linalg.lu_solve(*arguments, left=False, out=host)
    moved = [argument.to("openreg") for argument in arguments]
    torch.linalg.lu_solve(*moved, left=False, out=out)
    assert out.is_conj() == host.is_conj()
    assert_same(out, host)


def test_ldexp_does_not_overflow_on_the_way() -> None:
    x, e = torch.tensor([1e-30]), torch.tensor([130])
    assert_same(
        torch.ldexp(x.to("openreg"), e.to("openreg")), torch.ldexp(x, e)
    )
    assert_same(x.to("openreg").ldexp_(e.to("openreg")), x.clone().ldexp_(e))


def test_out_that_is_also_an_input_must_fit() -> None:
    base = torch.zeros(4, 3, device="openreg")
    x = base[0:1]
    with pytest.raises(RuntimeError, match="doesn't match the broadcast"):
        torch.mul(x, torch.ones(3, 3, device="openreg"), out=x)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast"):
        torch.add(x, torch.ones(3, 3, device="openreg"), out=x)
    assert base.cpu().eq(0).all()


def test_zero_tensors_are_written_out_when_used() -> None:
    zero = torch._efficientzerotensor(3, device="openreg")
    assert zero._is_zerotensor()
    assert zero.cpu().tolist() == [0, 0, 0]
    one = torch.ones(3, device="openreg")
    assert_same(one + zero, torch.ones(3))
    assert_same(one.clone().copy_(zero), torch.zeros(3))
    assert_same(zero.clone() + 1, torch.ones(3))
    assert torch._efficientzerotensor(1, device="openreg:1").device.index == 1


# Those whose kernel PyTorch gives zeros that have no memory.
PRODUCTS = {
    "dot": torch.dot,
    "vdot": torch.vdot,
    "matmul": torch.matmul,
    "rmatmul": lambda a, b: b.__rmatmul__(a),
    "inner": torch.inner,
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "vecdot": torch.linalg.vecdot,
}


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is", "ignore:Attempted to insert"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_has_a_derivative_by_one_factor_alone(name, dtype) -> None:
    product = PRODUCTS[name]
    host = torch.arange(3).add(1).to(dtype)
    x = host.to("openreg")
    for ours, theirs in (
        (lambda a: product(a, x), lambda a: product(a, host)),
        (lambda a: product(x, a), lambda a: product(host, a)),
        (lambda a: product(a, a), lambda a: product(a, a)),
    ):
        got = torch.func.jvp(ours, (x,), (x,))
        for a, b in zip(
            got, torch.func.jvp(theirs, (host,), (host,)), strict=True
        ):
            assert_same(a, b)
        _, pushed = torch.func.linearize(ours, x)
        assert_same(pushed(x), got[1].cpu())
        if dtype == torch.float32:
            assert_same(
                torch.func.jacfwd(ours)(x), torch.func.jacfwd(theirs)(host)
            )
            assert_same(
                torch.func.hessian(ours)(x), torch.func.hessian(theirs)(host)
            )


def test_a_zero_without_memory_goes_through_a_kernel_that_knows_it() -> None:
    one = torch.ones(3, device="openreg")
    zero = torch._efficientzerotensor(3, device="openreg")
    for product in torch.dot, torch.vdot:
        for result in product(zero, one), product(one, zero):
            assert result._is_zerotensor()
            assert_same(result + 1, torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        torch.dot(
            one, one, out=torch._efficientzerotensor((), device="openreg")
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_forward_mode_and_second_derivatives() -> None:
    one = torch.ones(2, device="openreg")
    tangent = torch.func.jvp(lambda a: a.sin() * one, (one,), (one,))[1]
    torch.testing.assert_close(tangent.cpu(), torch.ones(2).cos())
    hessian = torch.func.hessian(lambda a: (a**3).sum())(one)
    assert hessian.cpu().tolist() == [[6, 0], [0, 6]]
    x = torch.tensor([2.0, -1.0], device="openreg", requires_grad=True)
    (grad,) = torch.autograd.grad(x.abs().sum(), x, create_graph=True)
    assert grad.tolist() == [1, -1]
    grad.sum().backward()
    assert x.grad.cpu().tolist() == [0, 0]


def test_a_host_tensor_cannot_be_indexed_from_the_device() -> None:
    index = torch.tensor([0, 1], device="openreg")
    host = torch.arange(4.0)
    for wrong in (
        lambda: host[index],
        lambda: host[torch.ones(4, dtype=torch.bool, device="openreg")],
        lambda: host.to("openreg").index_put_((index,), torch.ones(2)),
        lambda: host.to("openreg:1")[index],
    ):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()


def test_several_results_that_share_memory_share_it() -> None:
    x = torch.rand(5, 3, device="openreg")
    values, indices = x.sort(0)
    assert values.data_ptr() != indices.data_ptr()
    parts = torch.ops.aten.unsafe_chunk(x, 2)
    assert [p.device.type for p in parts] == ["openreg"] * 2


def test_results_of_unknown_shape() -> None:
    a, da = pair(4, 6)
    assert_same(da.nonzero(), a.nonzero())
    assert_same(da[da > 7], a[a > 7])
    assert_same(da.flatten().unique(), a.flatten().unique())


def test_lists_and_optional_lists_of_tensors() -> None:
    a, da = pair(4, 6)
    assert_same(torch.cat([da, da[:1]], 0), torch.cat([a, a[:1]], 0))
    rows, columns = torch.tensor([0, 3]), torch.tensor([1, 2])
    assert_same(da[:, columns.to("openreg")], a[:, columns])
    # Indices may stay on the host, as on CUDA.
    assert_same(da[rows, columns], a[rows, columns])
    da[rows] = -1
    a[rows] = -1
    assert_same(da, a)


INDEXING = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "mask": lambda x, i: x[x > 7],
    "write": lambda x, i: x.index_put_([i], x[0] * 2, True),
    "operator": lambda x, i: torch.ops.aten.index(x, [None, i]),
    "lists": lambda x, i: torch.cat([part[0] for part in torch.split(x, 2)]),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is")
@pytest.mark.parametrize("name", INDEXING)
def test_a_trace_brings_lists_of_another_type(name) -> None:
    index = torch.tensor([2, 0])
    host, device = pair(4, 6)
    arguments = (device.clone(), index.to("openreg"))
    traced = torch.jit.trace(INDEXING[name], arguments, check_trace=False)
    assert_same(
        traced(device, index.to("openreg")),
        INDEXING[name](host, index),
    )
    assert_same(device, host)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_a_script_brings_lists_of_another_type() -> None:
    @torch.jit.script
    def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x[i] = x[:, i].sum()
        return torch.ops.aten.index(x, [None, i])

    index = torch.tensor([2, 0])
    host, device = pair(4, 6)
    assert_same(pick(device, index.to("openreg")), pick(host, index))
    assert_same(device, host)
    with pytest.raises(RuntimeError, match="same device"):
        pick(device, index.to("openreg:1"))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (0, 0, 2)])
def test_empty_and_zero_dimensional_tensors(shape) -> None:
    host = torch.ones(shape)
    device = host.to("openreg")
    assert_same(device + device, host + host)
    assert_same(device.sum(), host.sum())
    assert_same(device.exp(), host.exp())
    assert device.clone().shape == shape


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_lazy_bits_survive_copies(bit) -> None:
    host = torch.tensor([1 + 2j, 3 - 4j])
    host = host.conj() if bit == "conj" else host.conj().imag
    device = torch.tensor([1 + 2j, 3 - 4j], device="openreg")
    device = device.conj() if bit == "conj" else device.conj().imag
    for copy in (device.cpu(), device.clone().cpu(), (device + 0).cpu()):
        assert (
            copy.resolve_conj()
            .resolve_neg()
            .equal(host.resolve_conj().resolve_neg())
        )
    target = torch.zeros_like(host.resolve_conj().resolve_neg())
    target.copy_(device)
    assert target.equal(host.resolve_conj().resolve_neg())


COPIES = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, 6),
    "part": lambda x: x[1:3, 2:],
}


@pytest.mark.parametrize("layout", COPIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool])
def test_copies_convert_and_follow_strides(layout, dtype) -> None:
    a, da = pair(4, 6)
    source, device_source = COPIES[layout](a), COPIES[layout](da)
    expected = source.to(dtype, copy=True)
    for target in ("openreg:0", "openreg:1", "cpu"):
        got = device_source.to(target, dtype, copy=True)
        assert got.device == torch.device(target)
        assert got.stride() == expected.stride()
        assert got.cpu().equal(expected)
    assert source.to("openreg", dtype).cpu().equal(expected)
    out = torch.zeros(source.shape, dtype=dtype).t().contiguous().t()
    assert out.copy_(device_source).equal(expected)
    out = out.to("openreg:1").zero_()
    assert out.copy_(device_source).cpu().equal(expected)


def test_copy_broadcasts_its_source() -> None:
    x = torch.zeros(2, 3, device="openreg")
    x.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert x.cpu().tolist() == [[1, 2, 3]] * 2
    x.copy_(torch.tensor(5.0, device="openreg:1"))
    assert x.cpu().eq(5).all()


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("there", ["openreg:0", "openreg:1", "cpu"])
def test_a_shape_that_does_not_fit_is_refused_without_elements_too(
    there, non_blocking
) -> None:
    message = re.escape("The size of tensor a (0) must match the size of")
    for here in "openreg:0", "cpu":
        nothing = torch.empty(0, 3, device=here)
        for shape in (1, 3), (3,), (0, 1):
            nothing.copy_(torch.ones(shape, device=there), non_blocking)
        with pytest.raises(RuntimeError, match=message):
            nothing.copy_(torch.ones(2, 3, device=there), non_blocking)


class Elsewhere(Tensor):
    """Says that it is on another accelerator, of which there is none here."""

    @staticmethod
    def __new__(cls, *shape: int) -> Elsewhere:
        return Tensor._make_wrapper_subclass(cls, shape, device="xpu:0")

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        raise AssertionError(f"{operator} is for the dispatcher")


@pytest.mark.proves("messages.openreg-there-is-no-copy-from")
@pytest.mark.parametrize("pair", ["to the device", "from the device"])
def test_memory_of_a_third_kind_of_device_is_not_read(pair) -> None:
    x = torch.ones(3, device="openreg")
    ends = (x, Elsewhere(3))
    dst, src = ends if pair == "to the device" else reversed(ends)
    with (
        torch._C._DisableTorchDispatch(),
        pytest.raises(
            NotImplementedError,
            match=f"openreg: there is no copy from {src.device} to "
            f"{dst.device}; copy to the CPU first",
        ),
    ):
        torch.ops.aten._copy_from(src, dst)
    assert x.tolist() == [1, 1, 1]


def test_copies_within_a_storage_that_do_not_meet_are_made() -> None:
    x = torch.arange(6.0, device="openreg")
    x[:3] = x[3:]
    assert x.tolist() == [3, 4, 5, 3, 4, 5]
    x.view(torch.int32).copy_(x)  # element by element, in its place
    assert x.view(torch.int32).tolist() == [3, 4, 5, 3, 4, 5]
    y = torch.tensor([1 + 2j, 3 - 4j], device="openreg")
    y.conj().fill_(y[0])
    z = torch.tensor([1 + 2j, 3 - 4j])
    z.conj().fill_(z[0])
    assert torch.equal(y.cpu(), z)


MIXED = {
    "add": lambda a, b: a + b,
    "mm": lambda a, b: torch.mm(a, b),
    "cat": lambda a, b: torch.cat([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "embedding": lambda a, b: torch.embedding(a, b.long()),
    "linear": lambda a, b: torch.nn.functional.linear(a, b),
    "gather": lambda a, b: a.gather(0, b.long()),
    "out": lambda a, b: torch.exp(a, out=b),
    "conv1d": lambda a, b: torch.conv1d(a[None], b[:, :, None]),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize(
    ("first", "second"), [("openreg:0", "cpu"), ("openreg:0", "openreg:1")]
)
def test_tensors_on_two_devices_are_refused(name, first, second) -> None:
    a = torch.ones(3, 3, device=first)
    b = torch.ones(3, 3, device=second)
    with pytest.raises(RuntimeError, match=r"[Ee]xpected.*same device|on cpu"):
        MIXED[name](a, b)
    assert (a + a).cpu().eq(2).all()
    assert b.cpu().eq(1).all()


def test_a_host_scalar_cannot_take_a_device_result() -> None:
    with pytest.raises(RuntimeError):
        torch.tensor(1.0).add_(torch.tensor(1.0, device="openreg"))
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.aten.exp.out(
            torch.tensor(1.0, device="openreg"), out=torch.tensor(0.0)
        )


def test_errors_are_the_cpus_and_leave_no_trace() -> None:
    x = torch.arange(4.0, device="openreg")
    for wrong in (
        lambda t: t + torch.ones(3).to(t.device),
        lambda t: t.view(3),
        lambda t: t @ torch.ones(3, 3).to(t.device),
        lambda t: t.take(torch.tensor([9]).to(t.device)),
        lambda t: t.gather(1, torch.tensor([0]).to(t.device)),
    ):
        with pytest.raises((RuntimeError, IndexError)) as on_host:
            wrong(x.cpu())
        with pytest.raises(type(on_host.value)) as on_device:
            wrong(x)
        assert str(on_device.value) == str(on_host.value)
        assert x.cpu().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [True, 7, 2.5, 1 + 2j])
def test_item_reads_every_kind_of_number(value) -> None:
    assert torch.tensor(value, device="openreg").item() == value


@pytest.mark.proves("messages.cannot-be-converted-to-scalar")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_item_reads_every_dtype() -> None:
    for dtype in (
        torch.uint8,
        torch.uint16,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.complex32,
    ):
        one = torch.ones((), dtype=torch.float32).to(dtype)
        assert one.to("openreg").item() == 1
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.ones(2, device="openreg").item()


@pytest.mark.proves("messages.unsupported-memory-format")
def test_resize_grows_the_storage_and_keeps_what_was_there() -> None:
    x = torch.arange(4.0, device="openreg")
    x.resize_(2, 4)
    assert x.cpu()[0].tolist() == [0, 1, 2, 3]
    before = x.data_ptr()
    x.resize_(2)
    assert x.data_ptr() == before
    assert x.cpu().tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="Unsupported memory format"):
        x.resize_(2, 2, memory_format=torch.preserve_format)
    x.resize_(1, 2, 2, 2, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_set_moves_a_tensor_to_another_storage() -> None:
    x = torch.arange(6.0, device="openreg")
    y = torch.empty(0, device="openreg")
    y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    y.fill_(-1)
    assert x.cpu().tolist() == [0, -1, -1, -1, -1, 5]
    with pytest.raises(RuntimeError, match="to a storage on different device"):
        y.set_(torch.ones(2).untyped_storage())


def test_empty_is_filled_when_algorithms_must_be_deterministic() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="openreg").isnan().all()
        strided = torch.empty_strided((2,), (2,), device="openreg")
        assert strided.isnan().all()
        x = torch.ones(1, device="openreg").resize_(3)
        assert x.cpu()[1:].isnan().all()
        whole = torch.empty(2, dtype=torch.int64, device="openreg")
        assert whole.eq(torch.iinfo(torch.int64).max).all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_memory_formats_are_the_cpus() -> None:
    host = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    device = host.to("openreg")
    weight = torch.rand(4, 3, 3, 3)
    assert device.stride() == host.stride()
    assert device.relu().stride() == host.relu().stride()
    got = torch.conv2d(device, weight.to("openreg"))
    torch.testing.assert_close(got.cpu(), torch.conv2d(host, weight))


def test_results_that_are_not_plain_memory_are_refused() -> None:
    x = torch.ones(2, 2, device="openreg")
    with pytest.raises(NotImplementedError, match="layout Mkldnn"):
        x.to_mkldnn()
    assert torch.ones(2, device="openreg").sum().item() == 2


def test_autocast_of_the_cpu_does_not_reach_into_kernels() -> None:
    a, da = pair(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(da @ da.t(), a.to("openreg").mm(da.t()).cpu())


def test_threads_run_operators_side_by_side() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        torch.openreg.set_device(seed % 2)
        x = torch.full((64, 64), float(seed), device="openreg")
        for _ in range(50):
            x = (x @ torch.eye(64, device="openreg")).relu() + 1
        return bool((x.cpu() == seed + 50).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))
