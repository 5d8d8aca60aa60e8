"""Trains on batches that are copied while the one before them is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

acc = torch.accelerator


# [py-prefetch] Copies the next batch to the device while one is in use.
class Prefetch:
    def __init__(self, loader: Iterable[list[Tensor]]) -> None:
        self.loader = loader
        self.stream = torch.Stream(acc.current_accelerator())

    def send(self, batch: list[Tensor]) -> list[Tensor]:
        with self.stream:
            return [x.to(self.stream.device, non_blocking=True) for x in batch]

    def __iter__(self) -> Iterator[list[Tensor]]:
        sent = ((self.send(b), self.stream.record_event()) for b in self.loader)
        for (batch, copied), _ahead in pairwise(chain(sent, [([], None)])):
            here = acc.current_stream()
            here.wait_event(copied)
            for x in batch:
                x.record_stream(here)  # the memory is the side stream's
            yield batch


# [/py-prefetch]


def main() -> None:
    torch.manual_seed(0)
    x = torch.rand(1024, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    # Whoever draws the order draws on the host.
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(data, 64, True, pin_memory=True, generator=order)
    model = nn.Linear(8, 1).to("openreg")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        for inputs, targets in Prefetch(loader):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.3f}")
    assert loss < 0.01, "the network has not learnt to add"


if __name__ == "__main__":
    main()

# expect: ok
