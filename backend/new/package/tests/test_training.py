"""Training ends where it does on the CPU."""

import torch
from torch import nn


def train(device: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of some steps, and what the model has learnt, on the CPU."""
    torch.manual_seed(0)
    model = nn.Sequential(
        # A bias would get rounding for a gradient, of which Adam makes steps.
        nn.Linear(8, 32, bias=False),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 3),
    )
    x, y = torch.randn(32, 8), torch.arange(32) % 3
    weight = model[0].weight
    model.to(device)
    assert model[0].weight is weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.cpu() for k, v in model.state_dict().items()}


def test_the_device_learns_what_the_cpu_learns() -> None:
    (ours, weights), (theirs, expected) = train("openreg"), train("cpu")
    assert ours[-1] < ours[0] / 2
    # Kernels may round otherwise than the CPU's.
    close = {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(ours, theirs, **close)
    torch.testing.assert_close(weights, expected, **close)
