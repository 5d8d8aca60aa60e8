"""Trains on the accelerator that the machine has, or on the CPU without one.

No line names a device type: is a point inside the circle?
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

acc = torch.accelerator
torch.manual_seed(0)

# [py-anywhere-choose] The one decision that the program has to make.
device = acc.current_accelerator(check_available=True)
accelerated = device is not None
device = device or torch.device("cpu")
indices = range(acc.device_count()) if accelerated else [None]
print(f"{device.type}: {acc.device_count()} of them to train on")
# [/py-anywhere-choose]

# [py-anywhere-data] Pinned memory, where there is a device to read it.
places = torch.rand(512, 2) * 2 - 1
inside = (places.norm(dim=1) < 0.7).long()
loader = DataLoader(
    TensorDataset(places, inside), batch_size=64, pin_memory=accelerated
)
# [/py-anywhere-data]


# [py-anywhere-train] A training loop, on the current device.
def train() -> float:
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(12):
        for x, y in loader:
            x, y = (t.to(device, non_blocking=True) for t in (x, y))
            with torch.autocast(device.type, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = model(places.to(device)).argmax(1) == inside.to(device)
    return right.float().mean().item()


# [/py-anywhere-train]

# [py-anywhere-devices] Trains on each device, one after the other.
for index in indices:
    with acc.device_index(index):
        right = train()
        place = "the CPU" if index is None else f"device {index}"
        print(f"{place}: {right:.0%} right")
        assert right > 0.9, "the network has not learnt what a circle is"
# [/py-anywhere-devices]


# [py-anywhere-streams] A stream and two events, if there is a device.
if accelerated:
    stream, start, end = (
        torch.Stream(device),
        *(torch.Event(device, enable_timing=True) for _ in range(2)),
    )
    with stream:
        start.record()
        square = places.to(device) ** 2
        end.record()
    acc.current_stream().wait_stream(stream)
    assert torch.equal(square.cpu(), places**2)
    acc.synchronize()
    print(f"squared in {start.elapsed_time(end):.2f} ms on a second stream")
    print(f"at most {acc.max_memory_allocated() >> 10} KiB of memory")
# [/py-anywhere-streams]

# expect: ok
