"""Trains a small network on openreg: which of two spirals is a point on?"""

import math

import torch
from torch import nn

torch.manual_seed(0)


# [py-train-data] The data is made on the host and moved once.
def make_spirals(points: int) -> tuple[torch.Tensor, torch.Tensor]:
    radius = torch.linspace(0.2, 2.0, points).repeat(2)
    spiral = torch.arange(2).repeat_interleave(points)
    angle = 4 * radius + spiral * math.pi
    place = torch.stack((angle.cos(), angle.sin()), 1) * radius[:, None]
    return place + 0.03 * torch.randn(place.shape), spiral


places, spirals = (tensor.to("openreg") for tensor in make_spirals(200))
# [/py-train-data]

# [py-train-loop] The training loop, which is the same for every device.
model = nn.Sequential(
    nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
).to("openreg")
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

for step in range(161):
    scores = model(places)
    loss = nn.functional.cross_entropy(scores, spirals)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        right = (scores.argmax(1) == spirals).float().mean()
        print(f"step {step:3}: {right.item():4.0%} right on {scores.device}")
# [/py-train-loop]

# [py-train-outcome] Checks the result, and fails if it is not as expected.
assert right > 0.99, f"The network learnt only {right:.0%} of the points."
assert all(weight.device.type == "openreg" for weight in model.parameters())
# [/py-train-outcome]

# expect: ok
