"""What SyncBatchNorm asks of a device, composed of other operators.

The module exchanges each process's statistics by itself. It calls operators
that PyTorch has for CUDA alone, so a device that lacks them cannot run it.
"""

from __future__ import annotations

import torch
from torch import Tensor


# [py-batch-norm-stats] The statistics of one process, then those of all.
def _rest(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _of_channels(x: Tensor, like: Tensor) -> Tensor:
    return x.view(-1, *[1] * (like.dim() - 2))


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    exact = torch.promote_types(input.dtype, torch.float32)
    var, mean = torch.var_mean(input.to(exact), _rest(input), correction=0)
    return mean, (var + eps).rsqrt()


def gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    weights = counts.to(mean.dtype)[:, None]
    total = weights.sum()
    of_all = (weights * mean).sum(0) / total
    squares = (weights * (invstd.pow(-2) - eps + (mean - of_all) ** 2)).sum(0)
    if running_mean is not None:
        running_mean.lerp_(of_all.to(running_mean), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var), momentum)
    return of_all, (squares / total + eps).rsqrt()


# [/py-batch-norm-stats]


# [py-batch-norm-forward] Normalizes by these statistics.
def elemt(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    scale = invstd if weight is None else invstd * weight
    y = (input - _of_channels(mean, input)) * _of_channels(scale, input)
    if bias is not None:
        y = y + _of_channels(bias, input)
    return y.to(input.dtype)


# [/py-batch-norm-forward]


# [py-batch-norm-backward] The sums of one process, then the gradient from all.
def backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    *_: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    like = mean if weight is None else weight
    grad, xmu = grad_out.to(mean), input - _of_channels(mean, input)
    sum_dy, sum_dy_xmu = (x.sum(_rest(input)) for x in (grad, grad * xmu))
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(like), sum_dy.to(like)


def backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    total = count.sum()
    slope = _of_channels(invstd.square() * sum_dy_xmu / total, input)
    grad = grad_out - _of_channels(sum_dy / total, input)
    grad = grad - (input - _of_channels(mean, input)) * slope
    scale = invstd if weight is None else invstd * weight
    return (grad * _of_channels(scale, input)).to(input.dtype)


# [/py-batch-norm-backward]


# [py-batch-norm-register] Kernels in Python last as long as their library.
_LIBRARY = torch.library.Library("aten", "IMPL")


def register() -> None:
    """Gives the device the five operators, which are named as these are."""
    forward = stats, gather_stats_with_counts, elemt
    for kernel in (*forward, backward_reduce, backward_elemt):
        name = f"batch_norm_{kernel.__name__}"
        _LIBRARY.impl(name, kernel, "PrivateUse1")


# [/py-batch-norm-register]
