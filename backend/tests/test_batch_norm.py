"""What SyncBatchNorm asks of a device, beside BatchNorm of the whole batch."""

from __future__ import annotations

from functools import partial

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("affine", [True, False])
def test_shares_of_a_batch_are_normalized_as_the_whole_is(
    dtype: torch.dtype, affine: bool
) -> None:
    """By the operators of SyncBatchNorm, which has the shares elsewhere."""
    within = 1e-5 if dtype == torch.float32 else 5e-3
    close = partial(torch.testing.assert_close, rtol=within, atol=within)
    one = torch.nn.BatchNorm1d(3, affine=affine, device="openreg", dtype=dtype)
    x = torch.randn(5, 3, 7).to("openreg", dtype).requires_grad_()
    slope = torch.randn(5, 3, 7).to("openreg", dtype)
    y = one(x)
    y.backward(slope)
    assert x.grad is not None
    shares = list(zip(x.detach().split(2), slope.split(2), strict=True))
    stats = [torch.batch_norm_stats(share, one.eps) for share, _ in shares]
    counts = torch.tensor([14.0, 14.0, 7.0], device="openreg")
    of_none = torch.zeros(3), torch.ones(3)
    seen_mean, seen_var = (each.to("openreg", dtype) for each in of_none)
    means, invstds = map(torch.stack, zip(*stats, strict=True))
    whole = x.detach()
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        whole, means, invstds, seen_mean, seen_var, 0.1, one.eps, counts
    )
    close(seen_mean, one.running_mean)
    close(seen_var, one.running_var)
    of_all = mean, invstd, one.weight
    sums = [
        torch.batch_norm_backward_reduce(dy, share, *of_all, True, True, True)
        for share, dy in shares
    ]
    dy, dy_xmu, *slopes = (sum(each) for each in zip(*sums, strict=True))
    if affine:
        close(slopes[0], one.weight.grad)
        close(slopes[1], one.bias.grad)
    total = counts.to(torch.int32)
    for number, (share, of_share) in enumerate(shares):
        mine = slice(2 * number, 2 * number + 2)
        affinity = one.weight, one.bias
        found = torch.batch_norm_elemt(share, *affinity, mean, invstd, one.eps)
        close(found, y[mine])
        grad = torch.batch_norm_backward_elemt(
            of_share, share, *of_all, dy, dy_xmu, total
        )
        close(grad, x.grad[mine])
        assert grad.dtype == found.dtype == dtype
