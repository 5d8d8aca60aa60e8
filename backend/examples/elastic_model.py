"""The model of one_model.py, trained by as many hosts as there are.

`torchrun --nnodes 2 ... elastic_model.py FOLDER` begins where the checkpoint
in FOLDER, which all hosts see, has ended.
"""

import os
import sys
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from one_model import DEVICE, batches, make
from torch import nn
from torch.nn import functional as F


# [py-elastic-train] A step counts once its loss is in the file.
def train(model: nn.Module, file: Path, share: int, shares: int) -> list[float]:
    """The losses of all steps, also of those that were made before."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: list[float] = []
    if file.exists():
        kept = torch.load(file, map_location=DEVICE)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        losses = kept["losses"]
    for images, labels in islice(batches(epochs=8), len(losses), None):
        images, labels = (x.chunk(shares)[share] for x in (images, labels))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if shares > 1:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        if share == 0:
            keep(
                file,
                model=model.state_dict(),
                optimizer=optimizer.state_dict(),
                losses=losses,
            )
            print(f"step {len(losses)} by {shares}", flush=True)
    return losses


# [/py-elastic-train]


# [py-elastic-keep] Replaces the checkpoint as a whole, so none is half written.
def keep(file: Path, **state: object) -> None:
    half = file.with_suffix(".half")
    torch.save(state, half)
    half.replace(file)


# [/py-elastic-keep]


# [py-elastic-main] A rank that does not answer within this time counts as lost.
def main(folder: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.accelerator.set_device_index(rank)
    seconds = int(os.environ.get("SECONDS", "600"))
    dist.init_process_group(timeout=timedelta(seconds=seconds))
    model = nn.parallel.DistributedDataParallel(make())
    file = Path(folder) / "checkpoint.pt"
    train(model, file, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


# [/py-elastic-main]

if __name__ == "__main__":
    main(sys.argv[1])

# expect: ok
