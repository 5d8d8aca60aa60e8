"""Mixed precision: what is cast to what, and when."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

openreg = torch.openreg
half, bf16, fp32, fp64 = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
DTYPES = pytest.mark.parametrize("dtype", [half, bf16])


def autocast(**options):
    return torch.autocast("openreg", **options)


def rand(*size, dtype=fp32, **options):
    return torch.rand(*size, dtype=dtype, device="openreg", **options)


@DTYPES
def test_lower_precision_operators_run_in_the_chosen_dtype(dtype):
    x, y = rand(4, 4), rand(4, 4)
    image, kernel = rand(1, 1, 5, 5), rand(1, 1, 3, 3)
    with autocast(dtype=dtype):
        assert (x @ y).dtype == dtype
        assert F.linear(x, y).dtype == dtype
        assert F.conv2d(image, kernel).dtype == dtype
        assert torch.equal(x @ y, x.to(dtype) @ y.to(dtype))


@DTYPES
def test_fp32_operators_run_in_fp32(dtype):
    x = rand(8, dtype=dtype)
    with autocast(dtype=dtype):
        for operator in (torch.exp, torch.log, torch.rsqrt):
            assert operator(x).dtype == fp32
        assert torch.equal(torch.exp(x), torch.exp(x.float()))
        assert F.mse_loss(x, x + 1).dtype == fp32


@DTYPES
def test_fp32_set_opt_dtype_operators_give_fp32_unless_told(dtype):
    x = rand(8, dtype=dtype)
    with autocast(dtype=dtype):
        assert x.sum().dtype == fp32
        assert torch.softmax(x, 0).dtype == fp32
        assert x.sum(dtype=dtype).dtype == dtype
        assert torch.cumsum(x, 0, dtype=fp64).dtype == fp64


@DTYPES
def test_fp32_append_dtype_operators_give_fp32(dtype):
    x = rand(8, dtype=dtype)
    assert torch.ops.aten.norm.Scalar(x, 2).dtype == dtype
    with autocast(dtype=dtype):
        for norm in (
            torch.ops.aten.norm.Scalar(x, 2),
            torch.ops.aten.norm.ScalarOpt_dim(x, 2, [0]),
        ):
            assert norm.dtype == fp32
        assert torch.equal(norm, torch.ops.aten.norm.Scalar(x.float(), 2))


@DTYPES
def test_promote_operators_run_in_the_widest_dtype(dtype):
    low, wide = rand(8, dtype=dtype), rand(8)
    with pytest.raises(RuntimeError, match="dot : expected both vectors"):
        torch.dot(low, wide)
    with autocast(dtype=dtype):
        assert torch.dot(low, wide).dtype == fp32
        assert torch.dot(low, low).dtype == dtype
        assert torch.equal(torch.dot(low, wide), torch.dot(low.float(), wide))


def test_other_operators_pass_through():
    x = rand(8, dtype=half)
    with autocast(dtype=bf16):
        assert (x + x).dtype == half
        assert torch.relu(x).dtype == half


def test_fp64_tensors_and_cpu_tensors_are_left_alone():
    with autocast(dtype=half):
        assert (rand(2, 2, dtype=fp64) @ rand(2, 2, dtype=fp64)).dtype == fp64
        assert (torch.rand(2, 2) @ torch.rand(2, 2)).dtype == fp32


@pytest.mark.proves("messages.unsafe-to-autocast")
def test_binary_cross_entropy_is_refused_in_pytorchs_words():
    p, target = rand(4), rand(4)
    F.binary_cross_entropy(p, target)
    with autocast(), pytest.raises(RuntimeError) as error:
        F.binary_cross_entropy(p, target)
    assert "unsafe to autocast" in str(error.value)
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with library.open("rb") as file:
        words = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert words.find(str(error.value).encode()) > 0
    with autocast():
        assert F.binary_cross_entropy_with_logits(p, target).dtype == fp32


def listed_operators() -> set[str]:
    """The operators in the cast lists of PyTorch's installed header."""
    include = Path(torch.__file__).parent / "include"
    text = (include / "ATen" / "autocast_mode.h").read_text()
    names = set(re.findall(r'"(norm\.[A-Za-z_]+)"', text))
    for name in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        body = text.split(f"#define AT_FORALL_{name}(_)")[1].split("\n\n")[0]
        entries = re.findall(r"_\((\w+)(?:, (\w+))?\)", body)
        assert entries, name
        names |= {".".join(filter(None, entry)) for entry in entries}
    return names


@pytest.mark.proves("checklist.autocast")
def test_every_operator_of_pytorchs_lists_is_cast():
    names = listed_operators()
    assert len(names) > 100
    missing = [
        name
        for name in names | {"binary_cross_entropy"}
        if not torch._C._dispatch_has_kernel_for_dispatch_key(
            f"aten::{name}", "AutocastPrivateUse1"
        )
    ]
    assert missing == []


@pytest.mark.proves("amp-regions")
def test_regions_nest_and_can_be_switched_off():
    x = rand(2, 2)
    assert not torch.is_autocast_enabled("openreg")
    with autocast(dtype=half):
        assert torch.get_autocast_dtype("openreg") == half
        with autocast(dtype=bf16):
            assert (x @ x).dtype == bf16
            with autocast(enabled=False):
                assert (x @ x).dtype == fp32
            assert (x @ x).dtype == bf16
        assert (x @ x).dtype == half
    assert (x @ x).dtype == fp32


@pytest.mark.proves("packages-autocast")
@pytest.mark.filterwarnings("ignore:(CUDA|User provided)")
def test_a_region_of_another_device_changes_nothing_here():
    x = rand(2, 2)
    for other in ("cuda", "cpu"):
        with torch.autocast(other, bf16):
            assert (x @ x).dtype == fp32


def test_a_region_ends_with_an_exception():
    with pytest.raises(KeyError), autocast():
        raise KeyError
    assert not torch.is_autocast_enabled("openreg")


def test_the_default_dtype_is_a_supported_one():
    assert openreg.get_amp_supported_dtype() == [bf16, half]
    assert torch.get_autocast_dtype("openreg") == half
    with autocast():
        assert (rand(2, 2) @ rand(2, 2)).dtype == half


@pytest.mark.proves("amp-unsupported")
def test_an_unsupported_dtype_warns_and_switches_autocast_off():
    expected = "only supports dtypes of torch.bfloat16, torch.float16 currently"
    with pytest.warns(UserWarning, match=expected), autocast(dtype=fp64):
        assert (rand(2, 2) @ rand(2, 2)).dtype == fp32


def test_a_dtype_that_the_module_adds_is_supported(monkeypatch):
    monkeypatch.setattr(
        openreg, "get_amp_supported_dtype", lambda: [bf16, half, fp64]
    )
    with autocast(dtype=fp64):
        assert (rand(2, 2) @ rand(2, 2)).dtype == fp64


def test_without_the_list_pytorch_names_what_is_missing(monkeypatch):
    monkeypatch.delattr(openreg, "get_amp_supported_dtype")
    missing = pytest.raises(
        AssertionError, match="`get_amp_supported_dtype` is mis"
    )
    with missing:
        autocast()
    x = rand(2, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
    with missing:
        y.sum().backward()


def test_a_weight_is_cast_once_a_region():
    weight = rand(3, 3, requires_grad=True)
    x = rand(3, 3)
    with autocast(dtype=half):
        first, second = x @ weight, x @ weight
    (casts_1, casts_2) = (
        y.grad_fn.next_functions[1][0] for y in (first, second)
    )
    assert casts_1 is casts_2


class TestGradScaler:
    def step(self, scaler, weight, optimizer, factor):
        optimizer.zero_grad()
        with autocast(dtype=half):
            loss = (weight * factor).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def make(self):
        weight = torch.ones(4, device="openreg", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scaler = torch.amp.GradScaler(
            "openreg", init_scale=1024.0, growth_interval=2
        )
        return scaler, weight, optimizer

    def test_a_step_is_taken_with_the_gradients_unscaled(self):
        scaler, weight, optimizer = self.make()
        self.step(scaler, weight, optimizer, 1.0)
        assert weight.tolist() == [0.5] * 4
        assert scaler.get_scale() == 1024.0

    def test_a_step_with_an_inf_is_skipped_and_the_scale_halved(self):
        scaler, weight, optimizer = self.make()
        self.step(scaler, weight, optimizer, float("inf"))
        assert weight.tolist() == [1.0] * 4
        assert scaler.get_scale() == 512.0

    def test_the_scale_grows_after_enough_good_steps(self):
        scaler, weight, optimizer = self.make()
        for _ in range(2):
            self.step(scaler, weight, optimizer, 1.0)
        assert scaler.get_scale() == 2048.0

    def test_the_name_that_cudas_has_makes_one_for_this_device(self):
        scaler = openreg.amp.GradScaler(512.0, growth_interval=3)
        assert isinstance(scaler, torch.amp.GradScaler)
        assert scaler.scale(rand(1)).device.type == "openreg"
        assert scaler.get_scale() == 512.0
        assert scaler.get_growth_interval() == 3


@pytest.mark.parametrize("cast", [None, fp32])
def test_custom_functions_follow_the_autocast_of_this_device(cast):
    class Product(torch.autograd.Function):
        @staticmethod
        @openreg.amp.custom_fwd(cast_inputs=cast)
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x @ y

        @staticmethod
        @openreg.amp.custom_bwd
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            seen.append((grad @ y.T).dtype)
            return grad @ y.T, x.T @ grad

    seen: list[torch.dtype] = []
    x, y = rand(2, 2).requires_grad_(), rand(2, 2)
    with autocast(dtype=half):
        product = Product.apply(x, y)
    product.sum().backward()  # outside, and yet as `forward` was
    assert product.dtype == seen[0] == (cast or half)
    assert x.grad.dtype == fp32
