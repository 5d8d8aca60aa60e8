"""Attention in one kernel, and the question that leads there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# Outputs and gradients are compared bit by bit.
pytestmark = pytest.mark.usefixtures("one_thread")

MATH, OVERRIDEABLE = SDPBackend.MATH.value, SDPBackend.OVERRIDEABLE.value


def inputs(
    dtype: torch.dtype = torch.float32,
    heads: tuple[int, int] = (4, 4),
    lengths: tuple[int, int] = (33, 40),
) -> list[torch.Tensor]:
    """Query, key and value as a model makes them: heads from a last dim."""
    torch.manual_seed(0)
    counts = heads + heads[1:]
    return [
        torch.randn(2, length, count, 16).to(dtype).transpose(1, 2)
        for count, length in zip(counts, lengths + lengths[1:], strict=True)
    ]


def bias(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 1, 33, 40).to(dtype)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bias": {"attn_mask": bias()},
    "mask": {"attn_mask": bias() > -1},
    "mask of all heads": {"attn_mask": (bias() > -1)[:1, 0]},
    "groups": {"enable_gqa": True},
}


def run(
    tensors: list[torch.Tensor], options: dict[str, Any], device: str
) -> list[torch.Tensor]:
    """The output and the gradients."""
    there = [t.detach().to(device).requires_grad_() for t in tensors]
    moved = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
    }
    output = F.scaled_dot_product_attention(*there, **moved)
    grad = torch.linspace(-1, 1, output.numel(), dtype=output.dtype)
    output.backward(grad.view(output.shape).to(device))
    return [output.detach(), *(t.grad for t in there if t.grad is not None)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16]
)
def test_output_and_gradients_are_the_cpus(case, dtype) -> None:
    options = dict(CASES[case])
    if case == "bias":
        options["attn_mask"] = bias(dtype)
    tensors = inputs(dtype, (4, 2) if case == "groups" else (4, 4))
    ours = run(tensors, options, "openreg")
    theirs = run(tensors, options, "cpu")
    assert len(ours) == len(theirs) == 4
    for our, their in zip(ours, theirs, strict=True):
        assert our.device.type == "openreg"
        assert our.stride() == their.stride()
        assert torch.equal(our.cpu(), their)


def choice(*tensors: torch.Tensor, **options: Any) -> int:
    return torch._fused_sdp_choice(*tensors, **options)


def test_the_fused_kernel_serves_what_the_cpus_serves() -> None:
    there = [t.to("openreg") for t in inputs()]
    assert choice(*there) == OVERRIDEABLE
    assert choice(*there, dropout_p=0.1) == MATH
    learns = bias().to("openreg").requires_grad_()
    assert choice(*there, attn_mask=learns) == MATH
    with torch.no_grad():
        assert choice(*there, attn_mask=learns) == OVERRIDEABLE
    with sdpa_kernel(SDPBackend.MATH):
        assert choice(*there) == MATH


def test_a_bias_that_learns_gets_its_gradient() -> None:
    got = []
    for device in ("cpu", "openreg"):
        learns = bias().to(device).requires_grad_()
        q, k, v = (t.to(device) for t in inputs())
        F.scaled_dot_product_attention(
            q, k, v, attn_mask=learns
        ).sum().backward()
        assert learns.grad is not None
        got.append(learns.grad.cpu())
    assert torch.equal(*got)


def test_dropout_draws_from_the_devices_generator() -> None:
    q, k, v = (t.to("openreg") for t in inputs())
    before = torch.get_rng_state()
    torch.openreg.manual_seed(3)
    one = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.openreg.manual_seed(3)
    two = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert torch.equal(one.cpu(), two.cpu())
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_are_those_of_differences() -> None:
    tensors = [
        t.to("openreg").requires_grad_()
        for t in inputs(torch.float64, lengths=(5, 6))
    ]
    torch.autograd.gradcheck(F.scaled_dot_product_attention, tensors)


def test_tensors_of_two_devices_are_refused() -> None:
    query, key, value = inputs()
    for other in ("openreg:1", "cpu"):
        with pytest.raises(RuntimeError, match="to have the same device"):
            F.scaled_dot_product_attention(
                query.to("openreg"), key.to(other), value.to("openreg")
            )
        with pytest.raises(RuntimeError, match="to be on the same device"):
            q, k, v = (t.to("openreg") for t in inputs())
            F.scaled_dot_product_attention(q, k, v, bias().to(other))
    x = query.to("openreg")
    assert F.scaled_dot_product_attention(x, x, x).shape == query.shape


def test_tensors_without_memory_get_the_composed_form() -> None:
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = (t.to("openreg") for t in inputs(lengths=(5, 6)))
    expected = attend(q, k, v)
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    result = compiled(q.requires_grad_(), k, v)
    torch.testing.assert_close(result, expected)
    grads = [
        torch.autograd.grad(output.sum(), q)
        for output in (result, attend(q, k, v))
    ]
    torch.testing.assert_close(*grads)
    each = torch.vmap(attend)(q[:, None], k[:, None], v[:, None])
    torch.testing.assert_close(each[:, 0], expected)


def test_a_model_of_attention_learns_as_on_the_cpu() -> None:
    results = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, batch_first=True
        ).to(device)
        x = torch.randn(2, 9, 32).to(device)
        layer(x).square().sum().backward()
        results.append([p.grad.cpu() for p in layer.parameters()])
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_the_backward_pass_takes_any_strides_and_one_device() -> None:
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    q, k, v = (t.to("openreg") for t in inputs(lengths=(5, 6)))
    output, *kept, seed, offset, _ = forward(q, k, v)
    wanted = [True, True, True, False]
    call = [torch.ones_like(output), q, k, v, None, wanted, output, *kept]
    call += [0.0, False, seed, offset]
    backward = (
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
    )
    expected = backward(*call)[:3]
    for index, value in enumerate(call):
        if not isinstance(value, torch.Tensor):
            continue
        other = [*call]
        other[index] = value.to("openreg:1")
        with pytest.raises(RuntimeError, match="on the same device"):
            backward(*other)
        if value.dim() > 1:
            other[index] = torch.stack([value, value + 1], -1)[..., 0]
            for got, grad in zip(backward(*other), expected, strict=False):
                torch.testing.assert_close(got, grad)
