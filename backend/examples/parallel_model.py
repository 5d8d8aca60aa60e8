"""The model of one_model.py on several devices, a process for each.

`torchrun --nproc-per-node 2 parallel_model.py WAY...` goes the ways that are
named, or all, and compares each step's loss with that of one process alone.
"""

import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from one_model import DEVICE, Shapes, batches, make
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional as F


# [py-parallel-train] One loop for all; a process without a group trains alone.
def losses(
    model: nn.Module, share: int, shares: int, group: dist.ProcessGroup | None
) -> list[float]:
    """The loss of each step, in which this process sees its share."""
    # Parameters of several kinds, as tensor parallelism has, go one by one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    found = []
    for images, labels in batches(epochs=1):
        images, labels = (x.chunk(shares)[share] for x in (images, labels))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if group:
            dist.all_reduce(mean, dist.ReduceOp.AVG, group)
        found.append(mean.item())
    return found


# [/py-parallel-train]


# [py-parallel-ddp] Each process has the whole model and part of the pictures.
def ddp(mesh: DeviceMesh) -> nn.Module:
    group = mesh["data"].get_group()
    return nn.parallel.DistributedDataParallel(make(), process_group=group)


# [/py-parallel-ddp]


# [py-parallel-fsdp] Each process has a share of the parameters, too.
def fsdp(mesh: DeviceMesh) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = make()
    for layer in (*model.seen, model.named):
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    return model


# [/py-parallel-fsdp]


# [py-parallel-tensor] Each process has rows of a layer, and all pictures.
def share_layer(model: Shapes, mesh: DeviceMesh) -> Shapes:
    from torch.distributed.tensor import Replicate, parallel

    way = parallel.ColwiseParallel(output_layouts=Replicate())
    parallel.parallelize_module(model.named, mesh["tensor"], way)
    return model


def tensor(mesh: DeviceMesh) -> nn.Module:
    return share_layer(make(), mesh)


# [/py-parallel-tensor]


# [py-parallel-both] FSDP and tensor parallelism, on a mesh of two dimensions.
def both(mesh: DeviceMesh) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = share_layer(make(), mesh)
    fully_shard(model, mesh=mesh["data"])
    return model


# [/py-parallel-both]

WAYS: dict[str, Callable[[DeviceMesh], nn.Module]] = {
    way.__name__: way for way in (ddp, fsdp, tensor, both)
}


# [py-parallel-main] Arranges the processes in a mesh, and trains.
def run(name: str, device: torch.device) -> None:
    size = dist.get_world_size()
    tensors = {"tensor": size, "both": 2}.get(name, 1)
    shape = size // tensors, tensors
    mesh = init_device_mesh(
        device.type, shape, mesh_dim_names=("data", "tensor")
    )
    group = mesh["data"].get_group()
    share = mesh["data"].get_local_rank()
    alone = losses(make(), 0, 1, None)
    found = losses(WAYS[name](mesh), share, shape[0], group)
    torch.testing.assert_close(found, alone, rtol=1e-6, atol=0)
    if dist.get_rank() == 0:
        print(f"{name:6} {size} processes, last loss {found[-1]:.4f}")


def main(names: list[str]) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(DEVICE.type, rank)
    torch.accelerator.set_device_index(rank)
    dist.init_process_group(device_id=device)
    for name in names or WAYS:
        run(name, device)
    dist.destroy_process_group()


# [/py-parallel-main]

if __name__ == "__main__":
    main(sys.argv[1:])

# expect: ok
