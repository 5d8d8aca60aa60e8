"""What PyTorch builds on collectives, for all ranks of one group to try.

A function has the name of the row of book/rows/distributed.toml that it proves.
Those of FREE must pass, and those of MESHES, for which four ranks are needed.
One of IMPOSSIBLE returns what PyTorch says, and tries what to do instead.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from _examples import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

import one_model
import parallel_model

Wrap = Callable[[Any], nn.Module]
Make = Callable[[nn.Module], torch.optim.Optimizer]
FREE: dict[str, Callable[[], None]] = {}
MESHES: dict[str, Callable[[], None]] = {}
IMPOSSIBLE: dict[str, Callable[[], str]] = {}

DDP = nn.parallel.DistributedDataParallel


def free(case: Callable[[], None]) -> None:
    FREE[case.__name__] = case


def mesh(case: Callable[[], None]) -> None:
    MESHES[case.__name__] = case


def impossible(case: Callable[[], str]) -> None:
    IMPOSSIBLE[case.__name__] = case


def device() -> torch.device:
    return torch.device("openreg", torch.accelerator.current_device_index())


def world() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def share(whole: Tensor, dim: int = 0) -> Tensor:
    return whole.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(shape, generator=generator).to(device())


close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)


def step(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss


@functools.cache
def alone() -> list[float]:
    return parallel_model.losses(parallel_model.make(), 0, 1, None)


def learns(
    wrap: Wrap, within: float = 1e-6, make: Make = sgd, step: Any = step
) -> nn.Module:
    """Trains the example model, whose losses are those of one process."""
    model = wrap(parallel_model.make())
    optimizer, found = make(model), []
    for images, labels in one_model.batches(epochs=1):
        optimizer.zero_grad()
        mean = step(model, share(images), share(labels)).detach().clone()
        optimizer.step()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        found.append(mean.item())
    torch.testing.assert_close(found, alone(), rtol=within, atol=0)
    return model


def halves(quiet: Callable[[Any], Any]) -> Any:
    """A step in two, of which the first exchanges no gradients."""

    def both(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        with quiet(model):
            one = step(model, images[::2], labels[::2])
        two = step(model, images[1::2], labels[1::2])
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= 2
        return (one + two) / 2

    return both


@free
def ddp() -> None:
    learns(functools.partial(DDP, static_graph=True))
    small: Any = {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}
    learns(functools.partial(DDP, **small))

    def with_more(model: nn.Module) -> nn.Module:
        model.unused = nn.Linear(2, 2, device=device())
        return DDP(model, find_unused_parameters=True)

    learns(with_more)

    learns(DDP, step=halves(lambda model: model.no_sync()))
    model = DDP(nn.Linear(2, 1, device=device()))
    with model.join():
        for _ in range(1 + dist.get_rank()):
            model(torch.ones(2, device=device())).sum().backward()


@free
def hooks() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        post_localSGD_hook,
        powerSGD_hook,
        quantization_hooks,
    )

    def mean(bucket: dist.GradBucket) -> Any:
        sums = bucket.buffer().div_(dist.get_world_size())
        work = dist.all_reduce(sums, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    local = post_localSGD_hook.PostLocalSGDState(world(), None, 9)
    power = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2
    )
    cases: tuple[tuple[Any, Any, float], ...] = (
        (lambda _, bucket: mean(bucket), None, 1e-6),
        (default_hooks.allreduce_hook, None, 1e-6),
        (default_hooks.fp16_compress_hook, None, 1e-3),
        (post_localSGD_hook.post_localSGD_hook, local, 1e-6),
        (powerSGD_hook.powerSGD_hook, power, 0.2),
        (quantization_hooks.quantization_pertensor_hook, world(), 0.02),
        (quantization_hooks.quantization_perchannel_hook, world(), 0.02),
    )

    def hooked(hook: Any, state: Any, model: nn.Module) -> DDP:
        wrapped = DDP(model)
        wrapped.register_comm_hook(state, hook)
        return wrapped

    for hook, state, within in cases:
        learns(functools.partial(hooked, hook, state), within)


@free
def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    made = []

    def make(model: nn.Module) -> torch.optim.Optimizer:
        made.append(
            ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.SGD, lr=0.1, foreach=False
            )
        )
        return made[-1]

    learns(DDP, make=make)
    made[-1].consolidate_state_dict(0)


@free
def fsdp1() -> None:
    from torch.distributed import fsdp

    FSDP1 = fsdp.FullyShardedDataParallel
    half = fsdp.MixedPrecision(torch.bfloat16, torch.bfloat16)
    strategy = fsdp.ShardingStrategy.SHARD_GRAD_OP
    for settings, within in (
        ({}, 1e-6),
        ({"sharding_strategy": strategy, "use_orig_params": True}, 1e-6),
        ({"cpu_offload": fsdp.CPUOffload(True)}, 1e-6),
        ({"mixed_precision": half}, 0.05),
    ):
        wrap = functools.partial(FSDP1, device_id=device(), **settings)
        model = cast(Any, learns(wrap, within))
    with FSDP1.summon_full_params(model):
        assert model.named.weight.numel() == 1024


def fully(model: Any, **settings: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in (*model.seen, model.named):
        fully_shard(layer, **settings)
    return fully_shard(model, **settings)


@free
def fsdp2() -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    half = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for settings, within in (
        ({"reshard_after_forward": False}, 1e-6),
        ({"offload_policy": CPUOffloadPolicy()}, 1e-6),
        ({"mp_policy": half}, 0.05),
    ):
        learns(functools.partial(fully, **settings), within)

    @contextlib.contextmanager
    def quiet(model: Any) -> Iterator[None]:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)

    learns(fully, step=halves(quiet))
    model = learns(fully)
    norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    assert norm.full_tensor() > 0


@free
def sequence() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor, parallel

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = nn.LayerNorm(8), nn.Linear(8, 16)
            self.down = nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.down(F.relu(self.up(self.norm(x))))
            return y

    along = Shard(1)
    one = Block().to(device())
    plan = {
        "norm": parallel.SequenceParallel(),
        "up": parallel.ColwiseParallel(input_layouts=along),
        "down": parallel.RowwiseParallel(output_layouts=along),
    }
    for parameter in one.parameters():
        dist.broadcast(parameter.detach(), 0)
    many: Any = copy.deepcopy(one)
    parallel.parallelize_module(many, line(), plan)
    x = normal(2, 4, 8)
    y, expected = many(share(x, 1).contiguous()), one(x)
    close(y, share(expected, 1))
    y.square().sum().backward()
    expected.square().sum().backward()
    for layer in "norm", "up":
        found = getattr(many, layer).weight.grad.full_tensor()
        close(found, getattr(one, layer).weight.grad)
    labels = torch.tensor([1, 0, 3, 2], device=device())
    parted = distribute_tensor(normal(4, 4), line(), [along]).requires_grad_()
    with parallel.loss_parallel():
        loss = F.cross_entropy(parted, labels)
        loss.backward()
    close(cast(Any, loss).full_tensor(), F.cross_entropy(normal(4, 4), labels))


def line() -> dist.DeviceMesh:
    return dist.init_device_mesh("openreg", (dist.get_world_size(),))


@free
def functional() -> None:
    from torch.distributed import _functional_collectives as collectives

    group, x = world(), normal(4).add(dist.get_rank())
    every = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(every, x)
    total = torch.stack(every).sum(0)
    close(collectives.all_reduce(x, "sum", group), total)
    close(collectives.all_gather_tensor(x, 0, group), torch.cat(every))
    part = collectives.reduce_scatter_tensor(x, "sum", 0, group)
    close(part, share(total))
    x.requires_grad_()
    gathered = collectives.all_gather_tensor_autograd(x, 0, group)
    (gathered * torch.cat(every)).sum().backward()
    close(x.grad, x.detach() * len(every))


@free
def pipeline() -> None:
    from torch.distributed import pipelining

    size, rank = dist.get_world_size(), dist.get_rank()
    schedules: tuple[Any, ...] = (
        pipelining.ScheduleGPipe,
        pipelining.Schedule1F1B,
        pipelining.ScheduleInterleaved1F1B,
        pipelining.ScheduleInterleavedZeroBubble,
    )
    x, y = normal(8, 8), torch.zeros(8, 8, device=device())
    for number, schedule in enumerate(schedules):
        mine = [rank] if number < 2 else [rank, rank + size]
        layers = [layer(n) for n in range(size * len(mine))]
        whole: Any = nn.Sequential(*copy.deepcopy(layers))
        stages = [
            pipelining.PipelineStage(layers[n], n, len(layers), device())
            for n in mine
        ]
        last = rank == size - 1
        found: list[Tensor] = []
        schedule(
            stages[0] if number < 2 else stages, 4, loss_fn=F.mse_loss
        ).step(
            *([x] if rank == 0 else []),
            **({"target": y, "losses": found} if last else {}),
        )
        loss = F.mse_loss(whole(x), y)
        loss.backward()
        if last:
            close(torch.stack(found).mean(), loss, rtol=1e-6, atol=0)
        for n in mine:
            close(layers[n][0].weight.grad, whole[n][0].weight.grad)


def layer(number: int) -> Any:
    torch.manual_seed(number)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device())


@free
def norms() -> None:
    for dtype, within in ((torch.float32, 1e-5), (torch.float16, 5e-3)):
        for affine in (True, False):
            settings: Any = {
                "affine": affine,
                "device": device(),
                "dtype": dtype,
            }
            one = nn.BatchNorm1d(3, **settings)
            many = nn.SyncBatchNorm(3, **settings)
            x, weight = normal(5, 3, 7).to(dtype), normal(5, 3, 7).flip(0)
            parts = [x.clone().requires_grad_() for _ in range(2)]
            mine = slice(0, 2) if dist.get_rank() == 0 else slice(2, 5)
            y = one(parts[0])
            z = many(parts[1][mine])
            (y * weight).sum().backward()
            (z * weight[mine]).sum().backward()
            pairs: list[Any] = [(y[mine], z)]
            pairs += [[cast(Any, part.grad)[mine] for part in parts]]
            pairs += [(one.running_mean, many.running_mean)]
            pairs += [(one.running_var, many.running_var)]
            if affine:
                for of_one, of_many in zip(
                    one.parameters(), many.parameters(), strict=True
                ):
                    dist.all_reduce(of_many.grad)
                    pairs += [(of_one.grad, of_many.grad)]
            for pair in pairs:
                close(*pair, rtol=within, atol=within)


@free
def checkpoint() -> None:
    from torch.distributed import checkpoint as kept
    from torch.distributed.checkpoint import state_dict

    def state(model: Any, optimizer: Any) -> dict[str, Any]:
        parts = state_dict.get_state_dict(model, optimizer)
        return dict(zip(("model", "optimizer"), parts, strict=True))

    def weight(model: Any) -> Tensor:
        found = model.named.weight.detach()
        whole: Tensor = getattr(found, "full_tensor", found.clone)()
        return whole.clone()

    model: Any = learns(fully)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, *one_model.pictures(4, seed=1))
    optimizer.step()
    before, places = weight(model), [f"{sys.argv[2]}/{name}" for name in "ab"]
    kept.save(state(model, optimizer), checkpoint_id=places[0])
    saving: Any = kept.async_save(
        state(model, optimizer), checkpoint_id=places[1]
    )
    saving.result()
    for place in places:
        optimizer.step()
        again = state(model, optimizer)
        kept.load(again, checkpoint_id=place)
        state_dict.set_state_dict(
            model,
            optimizer,
            model_state_dict=again["model"],
            optim_state_dict=again["optimizer"],
        )
        assert weight(model).equal(before)
    rows = dist.init_device_mesh(
        "openreg", (1, 2), mesh_dim_names=("data", "tensor")
    )
    parted = parallel_model.share_layer(parallel_model.make(), rows)
    for other, settings in ((parted, {}), (parallel_model.make(), NO_GROUP)):
        again = {"model": other.state_dict()}
        kept.load(again, checkpoint_id=places[0], **settings)
        other.load_state_dict(again["model"])
        assert weight(other).equal(before)
    options = state_dict.StateDictOptions(
        full_state_dict=True, cpu_offload=True
    )
    whole: Any = state_dict.get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        assert whole["named.weight"].equal(before.cpu())


NO_GROUP: dict[str, Any] = {"no_dist": True}


@mesh
def hybrid() -> None:
    from torch.distributed import fsdp

    square = dist.init_device_mesh(
        "openreg", (2, 2), mesh_dim_names=("copies", "shares")
    )
    learns(functools.partial(fully, mesh=square))
    strategy = fsdp.ShardingStrategy.HYBRID_SHARD
    learns(
        functools.partial(
            fsdp.FullyShardedDataParallel,
            device_mesh=square,
            sharding_strategy=strategy,
        )
    )


@free
def compiled() -> None:
    learns(lambda model: cast(nn.Module, torch.compile(DDP(model))), 2e-6)
    learns(lambda model: cast(nn.Module, torch.compile(fully(model))), 2e-6)


@free
def recorder() -> None:
    from torch._C import _distributed_c10d

    c10d: Any = _distributed_c10d
    dist.all_reduce(normal(3, 5, 1 << 17))  # a smaller one goes by messages
    torch.accelerator.synchronize()
    entries = pickle.loads(c10d._dump_fr_trace())["entries"]
    last = max(entries, key=lambda entry: entry["record_id"])
    assert last["profiling_name"] == "gloo:all_reduce"
    assert last["input_sizes"] == [[3, 5, 1 << 17]]


@free
def detail() -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(backend=dist.get_backend())
    dist.set_debug_level(dist.DebugLevel.OFF)
    dist.all_reduce(normal(3), group=group)
    x = normal(3 + dist.get_rank())
    text = said(lambda: dist.all_reduce(x, group=group))
    assert "Detected mismatch between collectives on ranks" in text
    assert "TensorShape=[3]" in text
    assert "TensorShape=[4]" in text
    learns(functools.partial(DDP, process_group=group))


def said(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@impossible
def bfloat16() -> str:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    hook = default_hooks.bf16_compress_hook
    refused, model = (DDP(nn.Linear(2, 2, device=device())) for _ in "ab")
    text = said(lambda: refused.register_comm_hook(None, hook))
    model.register_comm_hook(None, lambda state, bucket: hook(state, bucket))
    model(torch.ones(2, device=device())).sum().backward()
    return text


@impossible
def random() -> str:
    from torch.distributed.tensor import (
        Replicate,
        Shard,
        distribute_tensor,
        rand,
    )
    from torch.distributed.tensor.experimental import local_map

    from torch_openreg import openreg

    mesh, along, size = line(), [Shard(0)], dist.get_world_size()
    text = said(lambda: rand(4, device_mesh=mesh, placements=along))
    draws: tuple[Callable[[Tensor], object], ...] = (
        F.dropout,
        nn.init.normal_,
        nn.init.uniform_,
        torch.rand_like,
        torch.randn_like,
        torch.bernoulli,
        lambda x: x.bernoulli_(0.5),
        lambda x: torch.randint_like(x, 9),
    )
    for placement in Shard(0), Replicate():
        for draw in draws:
            some = distribute_tensor(normal(4, 4).abs() % 1, mesh, [placement])
            state = openreg.get_rng_state()
            assert said(functools.partial(draw, some)) == text, draw
            assert openreg.get_rng_state().equal(state), draw
    # Instead: a whole one, or each share of its own, by seeds that differ.
    x = torch.rand(4, device=device())
    mine = distribute_tensor(x, mesh, along).full_tensor()
    dist.broadcast(x, 0)
    assert mine.equal(x)
    with torch.random.fork_rng([device()], device_type="openreg"):
        openreg.manual_seed(dist.get_rank())
        drop = local_map(F.dropout, along, (along,), device_mesh=mesh)
        dropped = drop(distribute_tensor(torch.ones(64), mesh, along))
    masks = dropped.full_tensor().chunk(size)
    assert not masks[0].equal(masks[1])
    return text


@impossible
def shares() -> str:
    from torch.distributed.tensor import Shard, distribute_tensor

    from torch_openreg import openreg

    draws: tuple[Callable[[Tensor], Any], ...] = (
        lambda x: x.exponential_(),
        lambda x: x.log_normal_(),
        lambda x: x.cauchy_(),
        lambda x: x.geometric_(0.5),
        lambda x: torch.multinomial(x, 1),
    )
    for draw in draws:
        for by_rank in False, True:
            openreg.manual_seed(by_rank * dist.get_rank())
            x = distribute_tensor(torch.ones(64, 9), line(), [Shard(0)])
            one, other = draw(x).full_tensor().chunk(2)
            assert one.equal(other) == (not by_rank)
    openreg.manual_seed(0)
    return "equal"


@impossible
def context() -> str:
    from torch.distributed.tensor import experimental

    q = normal(1, 2, 8, 16)
    with experimental.context_parallel(
        line(), buffers=[q], buffer_seq_dims=[2]
    ):
        attend = F.scaled_dot_product_attention
        return said(lambda: attend(q, q, q, is_causal=True))


@impossible
def monitored() -> str:
    text = said(dist.monitored_barrier)
    assert dist.monitored_barrier(dist.new_group(backend="gloo")) is None
    return text


@impossible
def symmetric() -> str:
    from torch.distributed import _symmetric_memory as memory

    return said(lambda: memory.empty(4, device=device()))


@impossible
def entries() -> str:
    # What reads them is exported, and what would write them is not.
    library = ctypes.CDLL(f"{torch.__path__[0]}/lib/libtorch_cpu.so")
    assert library["_ZN4c10d13dump_fr_traceB5cxx11Ebbb"]
    recorder = "_ZN4c10d14FlightRecorderIN3c105EventEE"
    writer = f"{recorder}9retire_idESt8optionalImEb"
    assert writer in said(lambda: library[writer])
    return said(lambda: library[f"{recorder}3getEv"])


@impossible
def replicas() -> str:
    model = nn.DataParallel(nn.Linear(2, 2, device="openreg:0"), [0, 1])
    return said(lambda: model(torch.ones(2, 2, device="openreg:0")))


def main(cases: dict[str, Any]) -> None:
    """Runs all of them, and prints each one's name with what came back."""
    for name, case in cases.items():
        found = case()
        if dist.get_rank() == 0:
            print(f"{name}: {found}", flush=True)
