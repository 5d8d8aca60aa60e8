"""Operators of a namespace of their own, in C++ and in Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal.optests import OpCheckError

from _extension import load
from _tensors import LAYOUTS
from torch_openreg.openreg.testing import Gate


@pytest.fixture(scope="module", autouse=True)
def vendor() -> None:
    load("swiglu", uses_backend=True)


def swiglu(x: Tensor, gate: Tensor) -> Tensor:
    return torch.ops.vendor.swiglu(x, gate)


def drawn(seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(seed)
    return (torch.randn(2, 3, 4, 6) * 10).to(dtype)


def both(
    dtype: torch.dtype, layout: str, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """A tensor on the CPU and its like on the device, of the same strides."""
    x, y = drawn(seed, dtype), drawn(seed, dtype).to("openreg")
    return LAYOUTS[layout](x), LAYOUTS[layout](y)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str
)
def test_swiglu_gives_what_the_cpu_composes(
    dtype: torch.dtype, layout: str
) -> None:
    (x, y), (gate, device_gate) = both(dtype, layout), both(dtype, layout, 1)
    expected = (x * F.silu(gate)).contiguous()
    found = swiglu(y, device_gate).cpu()
    torch.testing.assert_close(found, expected, check_stride=True)


def test_a_negative_bit_is_resolved_first() -> None:
    y = torch.randn(5, dtype=torch.complex64).to("openreg").conj().imag
    assert y.is_neg()
    x = y.cpu().contiguous()
    torch.testing.assert_close(swiglu(y, y).cpu(), x * F.silu(x))


def test_the_kernel_runs_on_the_tensors_device() -> None:
    x = torch.randn(7)
    y = x.to("openreg:1")
    result = swiglu(y, y)
    assert result.device.index == 1
    torch.testing.assert_close(result.cpu(), x * F.silu(x))
    assert torch.openreg.current_device() == 0


@pytest.mark.queued
def test_the_kernel_keeps_the_order_of_the_current_stream() -> None:
    x, gate = torch.randn(7), Gate()
    y = x.to("openreg")
    torch.openreg.synchronize()
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        gate.hold()
        y.mul_(-3)
        result = swiglu(y, y)
        assert not stream.query()
    gate.open()
    stream.synchronize()
    x = x * -3
    torch.testing.assert_close(result.cpu(), x * F.silu(x))


def pair(
    shape: tuple[int, ...] = (2, 3), dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.ones(shape, dtype=dtype, device="openreg")


EXPECTED = F.silu(torch.ones(2, 3))
ONE_DEVICE = "Expected all tensors to be on the same device"
ALIKE = "expected x and gate of one shape and one floating point dtype, but got"
REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "other device": (
        lambda: swiglu(pair(), pair().to("openreg:1")),
        RuntimeError,
        f"{ONE_DEVICE}, but got gate is on openreg:1",
    ),
    "host": (
        lambda: swiglu(pair(), torch.ones(2, 3)),
        RuntimeError,
        f"{ONE_DEVICE}, but got gate is on cpu",
    ),
    "number on the host": (
        lambda: swiglu(torch.tensor(1.0), pair(())),
        RuntimeError,
        f"{ONE_DEVICE}, but got gate is on openreg:0, different from other "
        "tensors on cpu",
    ),
    "shape": (
        lambda: swiglu(pair(), pair((3,))),
        RuntimeError,
        rf"{ALIKE} Float\[2, 3\] and Float\[3\]",
    ),
    "dtypes": (
        lambda: swiglu(pair(), pair(dtype=torch.float64)),
        RuntimeError,
        rf"{ALIKE} Float\[2, 3\] and Double\[2, 3\]",
    ),
    "integers": (
        lambda: swiglu(*[pair(dtype=torch.int64)] * 2),
        RuntimeError,
        rf"{ALIKE} Long\[2, 3\]",
    ),
    "bool": (
        lambda: swiglu(*[pair(dtype=torch.bool)] * 2),
        RuntimeError,
        rf"{ALIKE} Bool\[2, 3\]",
    ),
    "sparse": (
        lambda: swiglu(*[pair().to_sparse()] * 2),
        NotImplementedError,
        "Could not run 'vendor::swiglu' with arguments from the "
        "'Sparseopenreg' backend",
    ),
    "cpu": (
        lambda: swiglu(torch.ones(2), torch.ones(2)),
        NotImplementedError,
        "Could not run 'vendor::swiglu' with arguments from the 'CPU'",
    ),
    "meta shape": (
        lambda: swiglu(pair().to("meta"), pair((3,)).to("meta")),
        RuntimeError,
        rf"{ALIKE} Float\[2, 3\] and Float\[3\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()
    torch.testing.assert_close(swiglu(pair(), pair()).cpu(), EXPECTED)


@pytest.mark.queued
def test_an_error_comes_at_the_call_though_work_is_pending() -> None:
    call, error, message = REFUSED["shape"]
    gate, stream = Gate(), torch.openreg.Stream()
    with torch.openreg.stream(stream):
        gate.hold()
        with pytest.raises(error, match=message):
            call()
        gate.open()
        torch.testing.assert_close(swiglu(pair(), pair()).cpu(), EXPECTED)


def double(*shape: int) -> Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, device="openreg", requires_grad=True
    )


def test_swiglu_has_first_and_second_derivatives() -> None:
    arguments = double(2, 3), double(2, 3)
    assert gradcheck(swiglu, arguments)
    assert gradgradcheck(swiglu, arguments)


@pytest.mark.parametrize("which", [0, 1])
def test_swiglu_computes_the_gradients_that_are_asked_for(which: int) -> None:
    arguments = [double(2, 3), double(2, 3)]
    arguments[1 - which] = arguments[1 - which].detach()
    swiglu(*arguments).sum().backward()
    on_cpu = [a.detach().cpu() for a in arguments]
    on_cpu[which].requires_grad_()
    (on_cpu[0] * F.silu(on_cpu[1])).sum().backward()
    torch.testing.assert_close(arguments[which].grad.cpu(), on_cpu[which].grad)
    assert arguments[1 - which].grad is None


def test_an_operator_without_a_formula_says_so() -> None:
    load("gradients")
    negated, x = torch.ops.toy_gradients.negated, double(3)
    result = negated(x)
    assert torch.equal(result, -x)
    assert result.requires_grad
    assert result.grad_fn.name() == "torch::autograd::NotImplemented"
    with pytest.raises(
        RuntimeError,
        match="derivative for toy_gradients::negated is not implemented",
    ):
        result.sum().backward()
    with torch.no_grad():
        assert not negated(x).requires_grad


# What opcheck is shown.
ARGUMENTS: list[Callable[[], tuple[Tensor, Tensor]]] = [
    lambda: (double(3, 4), double(3, 4)),
    lambda: (double(3, 4).detach(), double(4, 3).detach().t()),
    lambda: (double(0).detach(), double(0).detach()),
]
# The fourth test does not know the device, see the next function but one.
TESTS = "test_schema", "test_faketensor", "test_aot_dispatch_dynamic"


def test_the_backend_brings_no_operators_of_its_own() -> None:
    everything = torch._C._dispatch_get_all_op_names()
    assert not [name for name in everything if name.startswith("openreg::")]


@pytest.mark.proves("custom-checked")
@pytest.mark.parametrize("make", ARGUMENTS)
def test_opcheck_passes(make: Callable[[], tuple[Tensor, Tensor]]) -> None:
    torch.library.opcheck(torch.ops.vendor.swiglu, make(), test_utils=TESTS)


@pytest.mark.proves("checklist.autograd")
def test_autograd_is_registered_where_it_belongs() -> None:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(
        "vendor::swiglu", "AutogradPrivateUse1"
    )


def test_opcheck_asks_that_question_for_three_devices_only() -> None:
    with pytest.raises(
        OpCheckError, match="NYI devices other than CPU/CUDA/XPU"
    ):
        torch.library.opcheck(torch.ops.vendor.swiglu, (double(2), double(2)))


@pytest.mark.parametrize("make", ARGUMENTS)
def test_meta_tensors_show_shape_dtype_and_strides(
    make: Callable[[], tuple[Tensor, Tensor]],
) -> None:
    arguments = [a.detach() for a in make()]
    expected = swiglu(*arguments)
    found = swiglu(*(a.to("meta") for a in arguments))
    assert (found.shape, found.dtype, found.stride()) == (
        expected.shape,
        expected.dtype,
        expected.stride(),
    )


@pytest.mark.proves("custom-no-forward-mode")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_what_the_formulas_cannot_do(capfd: pytest.CaptureFixture[str]) -> None:
    x, gate = double(2, 3).detach(), double(2, 3).detach()
    with pytest.raises(
        RuntimeError, match="cannot use C\\+\\+ torch::autograd::Function with"
    ):
        torch.func.grad(lambda x: swiglu(x, gate).sum())(x)
    library = torch.library.Library("lab_limits", "DEF")
    library.define("third(Tensor x) -> Tensor")
    library.impl("third", lambda x: x / 3, "PrivateUse1")
    torch.library.register_autograd(
        "lab_limits::third", lambda ctx, gradient: gradient / 3, lib=library
    )
    with pytest.raises(RuntimeError, match="must override the setup_context"):
        torch.func.grad(lambda x: torch.ops.lab_limits.third(x).sum())(x)
    with fwAD.dual_level():
        dual = fwAD.make_dual(x, gate)
        with pytest.raises(RuntimeError, match="jvp is not implemented"):
            swiglu(dual, gate)
        third = torch.ops.lab_limits.third
        with pytest.raises(NotImplementedError, match="implement the jvp"):
            third(dual.requires_grad_())
        assert fwAD.unpack_dual(third(fwAD.make_dual(x, gate))).tangent is None
    library._destroy()
    batched = torch.vmap(swiglu)(x, gate)
    assert "not yet implemented the batching rule" in capfd.readouterr().err
    assert torch.equal(batched, swiglu(x, gate))


def test_autocast_leaves_swiglu_alone() -> None:
    x = torch.ones(2, device="openreg")
    with torch.autocast("openreg", torch.bfloat16):
        assert swiglu(x, x).dtype == torch.float32
        with pytest.raises(RuntimeError, match=ALIKE):
            swiglu(x.bfloat16(), x)


def test_swiglu_is_compiled_with_its_gradient() -> None:
    compiled = torch.compile(
        lambda x, gate: swiglu(x * 2, gate).sum(),
        backend="aot_eager",
        fullgraph=True,
    )
    x, gate = double(3, 4), double(3, 4)
    compiled(x, gate).backward()
    found = [x.grad, gate.grad]
    x.grad = gate.grad = None
    swiglu(x * 2, gate).sum().backward()
    assert [g.tolist() for g in found] == [x.grad.tolist(), gate.grad.tolist()]


class Alias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5


class Same(Alias):
    @staticmethod
    def forward(ctx, x):
        return x


@pytest.fixture(scope="module")
def lab() -> Iterator[torch.library.Library]:
    """The same two operators, in Python."""
    library = torch.library.Library("lab_aliasing", "DEF")
    for name, function in ("aliasing", Alias), ("returns_self", Same):
        library.define(f"{name}(Tensor(a) self) -> Tensor(a)")
        library.impl(name, function.apply, "AutogradPrivateUse1")
        library.impl(name, torch.ops.aten.alias, "CompositeExplicitAutograd")
    yield library
    library._destroy()


@pytest.fixture(params=["C++", "Python"])
def aliasing(
    request: pytest.FixtureRequest, lab: torch.library.Library
) -> list[Callable[[Tensor], Tensor]]:
    if request.param == "C++":
        load("gradients")
        toy = torch.ops.toy_gradients
        return [toy.aliasing, toy.returns_self]
    return [
        torch.ops.lab_aliasing.aliasing,
        torch.ops.lab_aliasing.returns_self,
    ]


@pytest.mark.proves("custom-alias")
def test_an_alias_shares_memory_and_gradient(aliasing) -> None:
    for operator in aliasing:
        x = double(3, 4)
        y = operator(x)
        assert y.data_ptr() == x.data_ptr()
        assert y._is_view()
        assert y._base is x
        y.sum().backward()
        assert x.grad.unique().tolist() == [0.5]


def test_an_alias_has_a_second_derivative(aliasing) -> None:
    for operator in aliasing:
        x = double(3)
        (first,) = torch.autograd.grad(
            (operator(x) ** 2).sum(), x, create_graph=True
        )
        assert torch.equal(first, x)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.tolist() == [0.5, 0.5, 0.5]


def test_writing_through_an_alias_writes_the_argument(aliasing) -> None:
    for operator in aliasing:
        x, expected = double(3, 4), []
        expected = (x * 2).tolist()
        version = x._version
        with torch.no_grad():
            operator(x).mul_(2)
        assert x.tolist() == expected
        assert x._version > version
        with torch.inference_mode():
            y = double(3).detach()
            assert operator(y) is not y
            operator(y).zero_()
            assert not y.any()


def test_opcheck_passes_for_an_alias(aliasing) -> None:
    for operator in aliasing:
        for x in double(3, 4), double(3, 4).detach().t():
            torch.library.opcheck(operator, (x,), test_utils=TESTS)


def test_writing_where_the_formula_would_be_lost_is_refused(aliasing) -> None:
    for operator in aliasing:
        x = double(3)
        y, before = operator(x), x.tolist()
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            y.mul_(2)
        assert x.tolist() == before
        y.sum().backward()
        assert x.grad.tolist() == [0.5, 0.5, 0.5]


def test_an_alias_is_compiled_as_one(aliasing) -> None:
    for operator in aliasing:
        torch.compiler.reset()
        compiled = torch.compile(operator, backend="aot_eager", fullgraph=True)
        x = double(3, 4)
        y = compiled(x)
        assert y.data_ptr() == x.data_ptr()
        y.sum().backward()
        assert x.grad.unique().tolist() == [0.5]


def test_a_compiled_write_through_an_alias_arrives(aliasing) -> None:
    for operator in aliasing:
        torch.compiler.reset()

        def write(x: Tensor, operator=operator) -> Tensor:
            operator(x).mul_(2)
            return x + 1

        compiled = torch.compile(write, backend="aot_eager", fullgraph=True)
        x = torch.ones(3, device="openreg")
        assert compiled(x).tolist() == [3, 3, 3]
        assert x.tolist() == [2, 2, 2]


class Doubles(torch.autograd.Function):
    """In place, and says so."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Forgets(torch.autograd.Function):
    """In place, and says nothing."""

    @staticmethod
    def forward(ctx, x):
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@pytest.mark.parametrize(
    ("function", "gradient"), [(Doubles, 6.0), (Forgets, 3.0)]
)
def test_mark_dirty_gives_the_argument_its_gradient(
    function: type[torch.autograd.Function], gradient: float
) -> None:
    x = double(2)
    y = x * 3
    result = function.apply(y)
    assert (result is y) == (function is Doubles)
    y.sum().backward()
    assert x.grad.tolist() == [gradient, gradient]
    assert torch.equal(y, x * 6)


# Dynamo instantiates the Function, which is deprecated (torch 2.13).
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_mark_dirty_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 3
        Doubles.apply(y)
        return y

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    x = double(2)
    y = compiled(x)
    assert torch.equal(y, x * 6)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_the_fallback_of_autograd_has_two_modes_in_python() -> None:
    library = torch.library.Library("lab_modes", "DEF")
    library.define("third(Tensor x) -> Tensor")
    library.impl("third", lambda x: x.detach() / 3, "PrivateUse1")
    third = torch.ops.lab_modes.third
    assert torch._C._get_autograd_fallback_mode() == "warn"
    try:
        result = third(double(2))
        with pytest.warns(
            UserWarning, match="an autograd kernel was not regis"
        ):
            result.sum().backward()
        torch._C._set_autograd_fallback_mode("nothing")
        assert not third(double(2)).requires_grad
        with pytest.raises(RuntimeError, match="NYI: mode='error'"):
            torch._C._set_autograd_fallback_mode("error")
    finally:
        torch._C._set_autograd_fallback_mode("warn")
        library._destroy()


def test_a_formula_after_the_first_compilation_is_not_seen() -> None:
    library = torch.library.Library("lab_late", "DEF")
    library.define("third(Tensor x) -> Tensor")
    library.impl("third", lambda x: x.detach() / 3, "PrivateUse1")
    third = torch.ops.lab_late.third
    compiled = torch.compile(third, backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="fake tensors"):
        compiled(double(2))
    torch.library.register_fake(
        "lab_late::third", torch.empty_like, lib=library
    )
    torch.library.register_autograd(
        "lab_late::third", lambda ctx, gradient: gradient / 3, lib=library
    )
    x = double(2)
    third(x).sum().backward()
    assert x.grad is not None
    x.grad = None
    with pytest.warns(UserWarning, match="an autograd kernel was not regis"):
        compiled(x).sum().backward()
    assert x.grad is None
    library._destroy()


def test_an_extension_adds_to_atens_namespace() -> None:
    load("fragment")
    squareplus = torch.ops.aten.lab_squareplus
    x = torch.randn(3, 4, dtype=torch.float64)
    y = x.to("openreg").requires_grad_()
    assert torch.equal(squareplus(y).cpu(), squareplus(x))
    assert torch.equal(squareplus(x), (x + (x * x + 4).sqrt()) / 2)
    assert gradcheck(squareplus, (y, 2.0))
    assert gradgradcheck(squareplus, (y, 2.0))
    torch.library.opcheck(squareplus, (y, 2.0), test_utils=TESTS)


@pytest.mark.parametrize(
    "x",
    [double(3, 4), double(4, 3).t(), double(0)],
    ids=["rows", "columns", "none"],
)
def test_an_extension_brings_an_operator_with_a_number(x: Tensor) -> None:
    load("squareplus")
    squareplus = torch.ops.toy_cpp.squareplus
    x = x.detach().requires_grad_()
    host = x.detach().cpu()
    expected = (host + (host * host + 2).sqrt()) / 2
    with torch.openreg.fallback.forbid():
        torch.testing.assert_close(squareplus(x, 2.0).cpu(), expected)
    assert gradcheck(squareplus, (x, 2.0))
    assert gradgradcheck(squareplus, (x, 2.0))
    torch.library.opcheck(squareplus, (x, 2.0), test_utils=TESTS)
    with pytest.raises(RuntimeError, match="expected floats, but got"):
        squareplus(x.detach().long())


def test_without_a_formula_a_write_leaves_the_gradient_as_it_was() -> None:
    library = torch.library.Library("lab_writes", "DEF")
    library.define("returns_(Tensor(a!) x) -> Tensor(a!)")
    library.define("silent_(Tensor(a!) x) -> ()")

    def returns_(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.neg_()

    def silent_(x: Tensor) -> None:
        returns_(x)

    library.impl("returns_", returns_, "PrivateUse1")
    library.impl("silent_", silent_, "PrivateUse1")
    mutating = torch.library.custom_op(
        "lab_writes::mutating",
        silent_,
        mutates_args=("x",),
        device_types="openreg",
        schema="(Tensor(a!) x) -> ()",
    )
    for operator in torch.ops.lab_writes.silent_, mutating:
        x = double(2)
        y = x * 1
        operator(y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y.sum().backward()
        assert x.grad.tolist() == [1, 1]
    x = double(2)
    y = x * 1
    torch.ops.lab_writes.returns_(y)
    with pytest.warns(UserWarning, match="an autograd kernel was not regis"):
        y.sum().backward()
    assert x.grad.tolist() == [1, 1]
    library._destroy()
