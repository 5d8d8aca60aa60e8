"""torch.distributed on the device: collectives, streams, faults.

Where it says `both`, the same call runs on tensors of the CPU over Gloo and on
the device's, in one group, and must give the same.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import _ranks

ROWS = Path(__file__).parents[2] / "book" / "rows"
pytestmark = pytest.mark.one_mode

# What DDP and its like import, when they are first used.
PARALLEL = "import torch.distributed.fsdp, torch.distributed.tensor.parallel"
MODES = pytest.mark.parametrize("mode", ["auto", "async", "blocking"])


@pytest.mark.proves("checklist.distributed")
def test_the_device_has_a_backend_of_its_own() -> None:
    assert dist.get_default_backend_for_device("openreg") == "orccl"
    assert dist.is_backend_available("orccl")


@pytest.mark.proves("distributed-letters")
def test_a_string_of_devices_is_taken_for_its_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = vars(dist.Backend).items()
    for name, value in list(known):  # put back what a registration changes
        if isinstance(value, (dict, list)):
            monkeypatch.setattr(dist.Backend, name, value.copy())
    monkeypatch.setattr(dist.Backend, "SPELT", "spelt", raising=False)
    monkeypatch.delattr(dist.Backend, "SPELT")
    dist.Backend.register_backend(
        "spelt", lambda *args: None, devices="openreg"
    )
    defaults = dist.Backend.default_device_backend_map
    assert {x for x, name in defaults.items() if name == "spelt"} == {
        *"openreg"
    }
    assert dist.get_default_backend_for_device("openreg") == "orccl"


@pytest.mark.proves("distributed-names")
def test_every_name_of_the_backend_serves() -> None:
    _ranks.run(
        """
    device = torch.device("openreg", rank)
    bound = {"device_id": device}
    ways = (None, {}), (None, bound), ("orccl", {}), ("openreg:orccl", bound)
    for number, (way, settings) in enumerate((*ways, (BOTH, {}))):
        begin(way, f"way{number}", **settings)
        parallel = nn.parallel.DistributedDataParallel
        model = parallel(nn.Linear(3, 1).to(device))
        model(torch.ones(3, device=device)).backward()
        x = torch.full((3,), rank + 1.0, device=device)
        dist.all_reduce(x)
        assert x.tolist() == [3.0] * 3, (way, bound, x)
        with warnings.catch_warnings(action="ignore"):
            dist.barrier()
        dist.destroy_process_group()
    """,
        first=PARALLEL,
    )


@MODES
@pytest.mark.parametrize("size", [2, 3])
def test_each_operator_reduces_as_gloo_does(mode: str, size: int) -> None:
    _ranks.run(
        """
    begin(BOTH)
    floats = torch.float32, torch.float64, torch.float16, torch.bfloat16
    integers = torch.int8, torch.uint8, torch.int32, torch.int64
    names = "SUM PRODUCT MIN MAX BAND BOR BXOR".split()
    # In which order Gloo multiplies three halves is its own affair.
    for dtype in (*floats[: 4 if size == 2 else 2], *integers):
        for name in names[:4] if dtype.is_floating_point else names:
            operator = getattr(dist.ReduceOp, name)
            x = torch.arange(1, 13).view(3, 4).add(5 * rank).to(dtype)
            y = x.to("openreg")
            dist.all_reduce(x, operator)
            dist.all_reduce(y, operator)
            assert torch.equal(x, y.cpu()), (dtype, name, x, y)
            for root in range(size):
                dist.reduce(x, root, operator)
                dist.reduce(y, root, operator)
                if rank == root:
                    assert torch.equal(x, y.cpu()), (dtype, name)
        y = torch.tensor([1, -7]).add(3 * rank).to(dtype).to("openreg")
        total = sum(torch.tensor([1, -7]) + 3 * each for each in range(size))
        dist.all_reduce(y, dist.ReduceOp.AVG)
        floating = dtype.is_floating_point
        mean = total.to(dtype)
        mean = mean.div(size, rounding_mode=None if floating else "trunc")
        assert torch.equal(y.cpu(), mean.to(dtype)), (dtype, y)
    x = torch.tensor([1 + 2j, 3j], device="openreg")
    dist.all_reduce(x)
    assert x.tolist() == [size * (1 + 2j), size * 3j]
    for length in 1 << 18, 1 << 20:  # in pairs, and by a ring
        large = torch.full((length,), rank + 1.0, device="openreg")
        dist.all_reduce(large, dist.ReduceOp.AVG)
        assert large.eq((size + 1) / 2).all()
    zero = torch.tensor([[0.0, -0.0][rank % 2]], device="openreg")
    dist.all_reduce(zero, dist.ReduceOp.MIN)
    signs = [torch.empty_like(zero) for _ in range(size)]
    dist.all_gather(signs, zero)
    assert len({each.signbit().item() for each in signs}) == 1
    """,
        size=size,
        OPENREG_LAUNCH=mode,
    )


@MODES
def test_parts_may_have_any_size(mode: str) -> None:
    _ranks.run(
        """
    begin()
    def part(sender, receiver):  # one in four is empty
        rows = (sender + 2 * receiver) % 4
        return torch.full((rows, 3), 10.0 * sender + receiver, device="openreg")
    sent = [part(rank, other) for other in range(size)]
    expected = [part(other, rank) for other in range(size)]
    for _ in range(3):
        found = [torch.empty_like(one) for one in expected]
        work = dist.all_to_all(found, sent, async_op=True)
        assert work.result() == found
        work.wait()
        assert all(map(torch.equal, found, expected)), (found, expected)
    shares = [part(other, 0) for other in range(size)]
    found = [torch.empty_like(one) for one in shares]
    dist.all_gather(found, shares[rank])
    assert all(map(torch.equal, found, shares)), (found, shares)
    whole = torch.empty(sum(map(len, shares)), 3, device="openreg")
    lengths = [len(one) for one in shares]
    dist.all_gather(list(whole.split(lengths)), shares[rank])
    assert torch.equal(whole, torch.cat(shares))
    for operator, expected in (("SUM", 10.0), ("MAX", 4.0), ("AVG", 2.5)):
        whole = torch.full((6, 3), rank + 1.0, device="openreg")
        parts = list(whole.split([0, 1, 2, 3]))
        operator = getattr(dist.ReduceOp, operator)
        dist.reduce_scatter(parts[rank], parts, operator)  # in its place
        for other, part in enumerate(parts):
            value = expected if other == rank else rank + 1.0
            assert part.eq(value).all(), (operator, other, part)
    """,
        size=4,
        OPENREG_LAUNCH=mode,
        OPENREG_DEVICE_COUNT="4",
    )


@pytest.mark.proves("distributed-dtypes")
@MODES
def test_tensors_of_each_dtype_move_whole(mode: str) -> None:
    _ranks.run(
        """
    begin(BOTH)
    dtypes = [
        torch.float32, torch.bool, torch.int16, torch.uint64,
        torch.complex64, torch.float8_e4m3fn, torch.complex128,
    ]
    def sample(dtype, of, *shape):
        generator = torch.Generator().manual_seed(of)
        bits = torch.randint(0, 2, (*shape, dtype.itemsize),
                             generator=generator, dtype=torch.uint8)
        return bits.view(dtype).squeeze(-1).to("openreg")
    def same(one, other):
        one, other = one.cpu(), other.cpu()
        assert one.view(torch.uint8).equal(other.view(torch.uint8)), dtype
    for dtype in dtypes:
        mine = [sample(dtype, r, 4, 3) for r in range(2)]
        x = mine[rank].clone()
        dist.broadcast(x, 1)
        same(x, mine[1])
        out = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(out, mine[rank])
        for r in range(2):
            same(out[r], mine[r])
        out = torch.empty(8, 3, dtype=dtype, device="openreg")
        dist.all_gather_into_tensor(out, mine[rank])
        same(out, torch.cat([m.cpu().view(torch.uint8) for m in mine]))
        out = [torch.empty_like(x) for _ in range(2)]
        dist.gather(mine[rank], out if rank == 1 else None, 1)
        if rank == 1:
            same(out[0], mine[0])
            same(out[1], mine[1])
        out = torch.empty_like(x)
        dist.scatter(out, mine if rank == 0 else None, 0)
        same(out, mine[rank])
        out = [torch.empty_like(x) for _ in range(2)]
        dist.all_to_all(out, [mine[rank], mine[rank]])
        for r in range(2):
            same(out[r], mine[r])
        one, two = (1, 3) if rank == 0 else (3, 1)
        out = torch.empty_like(x)
        splits = ([1, 3], [1, 3]) if rank == 0 else ([3, 1], [3, 1])
        dist.all_to_all_single(out, mine[rank], *splits)
        start = 0 if rank == 0 else 1
        other = mine[1][:3] if rank == 0 else mine[0][1:]
        own = mine[0][:1] if rank == 0 else mine[1][3:]
        parts = [own, other] if rank == 0 else [other, own]
        same(out, torch.cat([p.cpu().view(torch.uint8) for p in parts]))
    """,
        OPENREG_LAUNCH=mode,
    )


def test_reduce_scatter_has_all_forms() -> None:
    _ranks.run("""
    begin()
    ways = ("SUM", 1, 8), ("AVG", 2, 8), ("SUM", 1, 1 << 17)
    for operator, factor, count in ways:
        operator = getattr(dist.ReduceOp, operator)
        whole = torch.arange(1.0 * count, device="openreg") * (rank + 1)
        expected = torch.arange(1.0 * count).chunk(2)[rank] * 3 / factor
        out = torch.empty(count // 2, device="openreg")
        dist.reduce_scatter_tensor(out, whole, operator)
        assert out.tolist() == expected.tolist()
        stacked = whole.view(2, -1)  # the same, with a dimension of ranks
        dist.reduce_scatter_tensor(out.zero_(), stacked, operator)
        assert out.tolist() == expected.tolist()
        dist.reduce_scatter(out.zero_(), list(whole.chunk(2)), operator)
        assert out.tolist() == expected.tolist()
    """)


@pytest.mark.proves("distributed-messages")
@MODES
def test_messages_may_cross(mode: str) -> None:
    _ranks.run(
        """
    begin()
    other = 1 - rank
    x, y = torch.full((2,), rank + 5.0, device="openreg"), None
    y = torch.empty_like(x)
    batch = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, y, other)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert y.tolist() == [other + 5.0] * 2
    if os.environ["OPENREG_LAUNCH"] == "blocking":
        raise SystemExit  # each launch would wait for the other's
    sent, got = dist.isend(x + 1, other), dist.irecv(y, other)
    sent.wait()
    got.wait()
    assert y.tolist() == [other + 6.0] * 2
    if rank == 0:
        dist.send(x, 1, tag=3)
        dist.send(x + 2, 1, tag=4)
    else:
        four = dist.irecv(y, 0, tag=4)
        three = dist.irecv(z := torch.empty_like(y), 0, tag=3)
        three.wait()
        four.wait()
        assert (y - z).tolist() == [2.0, 2.0]
    if rank == 0:
        assert dist.recv(y) == 1
        assert y.tolist() == [6.0, 6.0]
    else:
        dist.send(x, 0)
    """,
        OPENREG_LAUNCH=mode,
    )


def test_objects_travel() -> None:
    _ranks.run("""
    for number, way in enumerate((None, "cpu:gloo,openreg:orccl")):
        begin(way, f"objects{number}")
        mine = {"rank": rank, "tensor": torch.ones(2, device="openreg")}
        all_of_them = [None, None]
        dist.all_gather_object(all_of_them, mine)
        assert [each["rank"] for each in all_of_them] == [0, 1]
        assert all_of_them[1]["tensor"].device.type == "openreg"
        box = [mine if rank == 0 else None]
        dist.broadcast_object_list(box, 0)
        assert box[0]["rank"] == 0
        got = [None]
        dist.scatter_object_list(got, ["a", "b"] if rank == 0 else None, 0)
        assert got == [["a"], ["b"]][rank]
        dist.destroy_process_group()
    """)


def test_a_backend_serves_without_a_group() -> None:
    _ranks.run("""
    from torch_openreg import _C
    stores = (dist.FileStore(f"{folder}/{name}", size) for name in "ab")
    long = timedelta(seconds=600)
    gloo = (dist.ProcessGroupGloo(each, rank, size, long) for each in stores)
    x = torch.ones(2, device="openreg")
    work = _C._Collectives(*gloo).allreduce([x])
    work.block_current_stream()
    assert x.tolist() == [2.0, 2.0]
    """)


def test_groups_have_parts() -> None:
    _ranks.run(
        """
    begin("cpu:gloo,openreg:orccl", device_id=torch.device("openreg", rank % 2))
    x = torch.full((2,), rank + 1.0, device="openreg")
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    dist.all_reduce(y := x.clone(), group=half)
    assert y.tolist() == [[3.0] * 2, [7.0] * 2][rank // 2]
    dist.all_reduce(z := torch.ones(1), group=half)
    assert z.tolist() == [2.0]
    mesh = dist.init_device_mesh("openreg", (2, 2), mesh_dim_names=("a", "b"))
    totals = [4.0, 6.0][rank % 2], [3.0, 7.0][rank // 2]
    for name, total in zip("ab", totals):
        dist.all_reduce(y := x.clone(), group=mesh[name].get_group())
        assert y.tolist() == [total] * 2, (name, y)
    pair = dist.new_group([1, 3])
    if rank in (1, 3):
        dist.all_reduce(y := x.clone(), group=pair)
        assert y.tolist() == [6.0, 6.0]
    """,
        size=4,
    )


@pytest.mark.proves("distributed-wait")
@pytest.mark.parametrize("mode", ["auto", "async"])
def test_a_wait_holds_the_stream_and_not_the_host(mode: str) -> None:
    _ranks.run(
        """
    begin()
    x = torch.zeros(4, device="openreg")
    gate = Gate()
    gate.hold()
    x.add_(rank + 1)  # is behind the gate, and the collective behind it
    work = dist.all_reduce(x, async_op=True)
    assert not work.is_completed()
    work.wait()
    assert not work.is_completed()
    x.mul_(2)
    later = openreg.current_stream().query()
    assert not later
    gate.open()
    assert x.tolist() == [6.0] * 4
    assert work.is_completed()
    assert work.is_success()
    """,
        OPENREG_LAUNCH=mode,
    )


def test_who_waits_at_once_needs_no_other_stream() -> None:
    """It takes its turn among the group's collectives all the same."""
    _ranks.run("""
    from torch_openreg.openreg.testing import trace
    begin()
    x, y = (torch.ones(2, device="openreg") for _ in range(2))
    side, gate = torch.Stream("openreg"), Gate()
    with trace() as records:
        dist.all_reduce(x)
        with side:
            dist.all_reduce(x)
            dist.all_reduce(x, async_op=True).wait()
        side.synchronize()
    streams = [
        record.stream for record in records
        if (record.name, record.phase) == ("c10d::allreduce", "start")
    ]
    assert len(set(streams)) == len(streams) == 3, streams
    assert streams[0] == 0, streams
    assert x.tolist() == [8.0] * 2
    with side:
        gate.hold()
        work = dist.all_reduce(x, async_op=True)  # behind the gate
    z = torch.ones(2, device="openreg")
    twice = [dist.all_reduce(z, async_op=True) for _ in range(2)]
    dist.all_reduce(y)  # behind those
    assert not openreg.current_stream().query()
    gate.open()
    for each in twice:
        each.wait()
    assert z.tolist() == [4.0] * 2
    assert y.tolist() == [2.0] * 2
    assert work.is_completed()
    assert x.tolist() == [16.0] * 2
    """)


@pytest.mark.proves("distributed-memory")
def test_memory_in_use_by_a_collective_is_not_given_out() -> None:
    _ranks.run("""
    begin()
    gate = Gate()
    gate.hold()
    x = torch.full((1 << 16,), 1.0, device="openreg")
    where = x.data_ptr()
    work = dist.all_reduce(x, async_op=True)
    total = torch.empty(1, device="openreg")
    del x
    y = torch.empty(1 << 16, device="openreg")
    assert y.data_ptr() != where
    gate.open()
    work.wait()
    assert work.result()[0].sum().item() == 2 << 16
    """)


def test_a_lazy_clone_is_parted_before_a_collective_writes() -> None:
    _ranks.run("""
    begin()
    x = torch.ones(3, device="openreg")
    y = torch._lazy_clone(x)
    dist.all_reduce(y)
    assert (x.tolist(), y.tolist()) == ([1.0] * 3, [2.0] * 3)
    """)


def test_futures_go_on_behind_the_collective() -> None:
    _ranks.run("""
    begin()
    x = torch.ones(3, device="openreg")
    gate = Gate()
    gate.hold()
    work = dist.all_reduce(x, async_op=True)
    twice = work.get_future().then(lambda done: done.value()[0] * 2)
    gate.open()
    assert twice.wait().tolist() == [4.0] * 3
    """)


def test_what_is_coalesced_goes_at_once() -> None:
    _ranks.run("""
    from torch.distributed.distributed_c10d import _coalescing_manager
    begin()
    device = torch.device("openreg", rank)
    def two():
        return torch.ones(2, device=device), torch.ones(3, device=device)
    a, b = two()
    with _coalescing_manager():
        dist.all_reduce(a)
        dist.all_reduce(b)
    assert (a.tolist(), b.tolist()) == ([2.0] * 2, [2.0] * 3)
    with _coalescing_manager(async_ops=True) as works:
        outs = [torch.empty(2 * n, device=device) for n in (2, 3)]
        for out, x in zip(outs, (a, b)):
            dist.all_gather_into_tensor(out, x)
    works.wait()
    assert outs[1].tolist() == [2.0] * 6
    with _coalescing_manager():
        outs = [torch.empty(1, device=device), torch.empty(2, device=device)]
        dist.reduce_scatter_tensor(outs[0], a)
        dist.reduce_scatter_tensor(outs[1], torch.ones(4, device=device))
    assert outs[1].tolist() == [2.0] * 2
    a, b = two()
    with _coalescing_manager(device=device):
        dist.broadcast(a.mul_(rank), 1)  # waits, so it goes at once
        dist.broadcast(b.mul_(rank), 1, async_op=True)
    assert (a.tolist(), b.tolist()) == ([1.0] * 2, [1.0] * 3)
    with _coalescing_manager(device=device):
        pass
    lists = [[torch.empty_like(a), torch.empty_like(b)] for _ in range(2)]
    with warnings.catch_warnings(action="ignore"):  # it is the older way
        dist.all_gather_coalesced(lists, [a.add(rank), b.mul(3 + rank)])
    assert [x.tolist() for x in lists[1]] == [[2.0] * 2, [4.0] * 3]
    """)


@pytest.mark.proves("distributed-coalescing")
def test_a_failed_coalescing_does_not_silence_what_comes_later() -> None:
    _ranks.run("""
    from torch.distributed.distributed_c10d import _coalescing_manager
    begin()
    x = torch.ones(4, 4, device="openreg")
    def fails():
        with _coalescing_manager(device=x.device):
            dist.broadcast(x.t()[:2], 0, async_op=True)
    for _ in range(2):
        refuses(fails, "contiguous", "[2, 4]")
        dist.all_reduce(x)
    assert x[0, 0].item() == 4.0
    """)


@pytest.mark.proves(
    "messages.takes-plain-tensors-of-the-device",
    "messages.takes-tensors-of-one-device",
    "messages.takes-contiguous-tensors-but-got",
    "messages.takes-one-tensor-or-list-for-each",
    "messages.takes-tensors-of-one-dtype",
    "messages.takes-a-list-of",
    "messages.takes-tensors-of-one-size",
    "messages.gives-this-rank",
    "messages.takes-that-many-times-the-elements",
    "messages.does-not-have-this-operator-for",
    "messages.this-group-has-run-collectives-on",
    "messages.of-no-tensor",
    "messages.rank-should-not-be-the-same",
    "messages.a-tag-is-below",
)
def test_what_cannot_be_is_refused_at_the_call() -> None:
    _ranks.run("""
    begin()
    x = torch.ones(4, 4, device="openreg")
    far = torch.ones(4, 4, device=f"openreg:{1 - rank}")
    dist.all_reduce(x)
    group = dist.group.WORLD._get_backend(x.device)
    y = torch.empty(2, 4, device="openreg", dtype=torch.int64)
    cases = {
        "takes contiguous tensors, but got sizes [4, 4] with strides [1, 4]":
            lambda: dist.all_reduce(x.t()),
        "this group has run collectives on": lambda: dist.all_reduce(far),
        "takes tensors of one device, but got some on":
            lambda: dist.all_gather([x, far], x),
        "takes a list of 2 tensors here, but got 1":
            lambda: dist.all_gather([x], x),
        "takes tensors of one size, but got [4, 4] and [2, 4]":
            lambda: dist.reduce_scatter(x.clone(), [x[:2], x[:2]]),
        "gives this rank 64 bytes of its own, and it expects 32":
            lambda: dist.all_to_all([x[:2], x[:2]], [x, x]),
        "takes that many times the elements of [4, 4], but got [4, 4]":
            lambda: dist.all_gather_into_tensor(x, x),
        "takes tensors of one dtype, but got Float and Long":
            lambda: dist.reduce_scatter_tensor(y, x),
        "does not have this operator for Float":
            lambda: dist.all_reduce(x, dist.ReduceOp.BAND),
        "does not have this operator for Short":
            lambda: dist.all_reduce(x.to(torch.int16)),
        "takes plain tensors of the device, but got one of layout":
            lambda: group.allreduce([x.to_sparse()]),
        "allreduce takes one tensor or list for each process, but got 2":
            lambda: group.allreduce([x, x]),
        "allgather takes one tensor or list for each process, but got 2":
            lambda: group.allgather([[x, x], [x, x]], [x]),
        "scatter takes one tensor or list for each process, but got 0":
            lambda: group.reduce_scatter([x], []),
        "of no tensor.": lambda: group.allreduce_coalesced([]),
        "destination rank should not be the same as the rank of the current":
            lambda: dist.isend(x, rank),
        "source rank should not be the same as the rank of the current":
            lambda: dist.irecv(x, rank),
        "a tag is below 536870912, but got 536870912.":
            lambda: dist.isend(x, 1 - rank, tag=1 << 29),
    }
    for words, call in cases.items():
        refuses(call, words)
    refuses(lambda: dist.all_reduce(x.cpu()), "cpu")
    dist.all_reduce(x)
    assert x[0, 0].item() == 4.0
    """)


@pytest.mark.proves("distributed-dead", "messages.cannot-reach-another")
@MODES
def test_a_dead_peer_is_an_error_at_once(mode: str) -> None:
    _ranks.run(
        """
    expendable = True
    begin()
    x = torch.ones(4, device="openreg")
    dist.all_reduce(x)
    x.cpu()
    if rank:
        os._exit(0)
    os.waitpid(children.pop(), 0)
    def fails():
        dist.all_reduce(x)
        x.cpu()
    for words in "rank 0 of 2", "rank 0 of 2 cannot reach another:":
        refuses(fails, words)
        openreg.reset_device(0)
        assert (x.fill_(3) * 2).tolist() == [6.0] * 4
    """,
        OPENREG_LAUNCH=mode,
    )


@pytest.mark.parametrize("mode", ["auto", "blocking"])
def test_a_silent_peer_is_an_error_after_the_timeout(mode: str) -> None:
    _ranks.run(
        """
    expendable = True
    if rank == 0:
        os.mkfifo(f"{folder}/done")
    begin(timeout=timedelta(seconds=2))
    x = torch.ones(4, device="openreg")
    dist.all_reduce(x)
    if rank:
        open(f"{folder}/done").close()  # when the other has opened it, too
        os._exit(0)
    def fails():
        dist.all_reduce(x)
        x.cpu()
    words = "c10d::allreduce of Float[4] on openreg:0 failed", "imed out"
    refuses(fails, *words)
    open(f"{folder}/done", "w").close()
    openreg.reset_device(0)
    assert (x.fill_(3) * 2).tolist() == [6.0] * 4
    """,
        OPENREG_LAUNCH=mode,
    )


@pytest.mark.proves(
    "distributed-mismatch",
    "messages.all-ranks-of-a-group-make",
    "messages.name-different-roots-or-operators",
)
def test_a_mismatch_of_ranks_names_both() -> None:
    _ranks.run("""
    begin()
    x = torch.ones([4, 5000][rank], device="openreg")
    def fails():
        dist.all_reduce(x)
        x.cpu()
    refuses(fails, "4 elements of Float", "5000 elements of Float")
    openreg.reset_device()
    assert (x.fill_(3) * 2)[0].item() == 6.0
    dtype = [torch.int32, torch.float32][rank]
    y = torch.ones(4, device="openreg", dtype=dtype)
    def fails():
        dist.all_reduce(y)
        y.cpu()
    refuses(fails, "Int", "Float")
    openreg.reset_device()
    def fails():
        dist.broadcast(x, 0) if rank else dist.all_reduce(x)
        x.cpu()
    same = "All ranks of a group make the same calls, in one order."
    refuses(fails, "BROADCAST", "ALLREDUCE", same)
    openreg.reset_device()
    def fails():
        dist.broadcast(z := torch.ones(2, device="openreg"), rank)
        z.cpu()
    refuses(fails, "name different roots or operators.")
    openreg.reset_device()
    def fails():
        dist.all_reduce(z := torch.ones(2, device="openreg"), [SUM, MAX][rank])
        z.cpu()
    SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX
    refuses(fails, "name different roots or operators.")
    openreg.reset_device()
    dist.all_reduce(y := torch.ones(3, device="openreg"))
    assert y.tolist() == [2.0] * 3
    if rank:
        dist.send(y, 0)
    else:
        def fails():
            dist.recv(x, 1)
            x.cpu()
        refuses(fails, "3 elements of Float", "4 elements of Float")
        openreg.reset_device()
    dist.all_reduce(y)
    assert y.tolist() == [4.0] * 3
    """)


@MODES
def test_after_a_mismatch_of_a_pair_its_parts_arrive(mode: str) -> None:
    """What was offered before both knew is not taken for what comes later."""
    _ranks.run(
        """
    begin()
    SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX
    def make(*shape, dtype=None):
        return torch.ones(*shape, dtype=dtype, device="openreg")
    def in_one_kernel():
        with dist._coalescing_manager(device=part.device):
            dist.all_reduce(make([count, 5 * count][rank]))
            dist.all_reduce(make([5 * count, count][rank]))
            dist.all_reduce(make(1 << 16))
    def right(number):
        whole = torch.arange(2.0 * count).add(number)
        got = make(2 * count)
        dist.all_to_all_single(got, (whole + rank).to("openreg"))
        part = whole.chunk(2)[rank]
        assert torch.equal(got.cpu(), torch.cat([part, part + 1])), number
    for count in 3, 1 << 16, 1 << 20:  # carried, offered, and neither
        part, whole = make(count), make(2 * count)
        wrong = make(2 * count, dtype=[torch.int32, torch.float32][rank])
        one_way = make(2 * count + rank)  # the other way, both agree
        cases = (
            (lambda: dist.all_to_all_single(
                one_way, whole, [count + rank, count], [count, count]),
                f" {count} elements of Float", f" {count + 1} elements"),
            (lambda: dist.all_to_all_single(wrong.clone(), wrong),
                "elements of Int", "elements of Float"),
            (lambda: dist.reduce_scatter_tensor(part, whole, [SUM, MAX][rank]),
                "name different roots or operators."),
            (lambda: dist.all_gather_into_tensor(whole, part) if rank
                else dist.reduce_scatter_tensor(part, whole),
                "ALLGATHER", "REDUCE_SCATTER"),
            (lambda: dist.all_reduce(part if rank else whole),
                f" {count} elements of Float", f" {2 * count} elements"),
            (lambda: dist.all_reduce(part) if rank
                else dist.broadcast(part, 0), "ALLREDUCE", "BROADCAST"),
            (lambda: dist.all_reduce(make([3, count + 1][rank])),
                " 3 elements of Float", f" {count + 1} elements"),
            (in_one_kernel, " elements of Float"),
        )
        for number, (call, *words) in enumerate(cases):
            right(number)
            def fails():
                call()
                part.cpu()
            refuses(fails, *words)
            openreg.reset_device()
            right(number + 100)
    """,
        OPENREG_LAUNCH=mode,
    )


@pytest.mark.proves("messages.has-not-ended-within")
def test_a_wait_of_limited_time_does_not_hurt_the_device() -> None:
    _ranks.run("""
    begin()
    gate = Gate()
    gate.hold()
    x = torch.ones(4, device="openreg")
    work = dist.all_reduce(x, async_op=True)
    soon = timedelta(milliseconds=10)
    refuses(lambda: work.wait(soon), "has not ended within 10 ms")
    gate.open()
    assert work.wait(timedelta(seconds=600))
    assert x.tolist() == [2.0] * 4
    """)


@pytest.mark.proves("distributed-losses")
@pytest.mark.parametrize("size", [2, 4])
def test_the_example_learns_as_one_process_does(size: int) -> None:
    """By DDP, FSDP2, tensor parallelism, and the last two in two dimensions."""
    _ranks.run(
        """
    sys.path.insert(0, EXAMPLES)
    import parallel_model
    device = torch.device("openreg", rank)
    begin(device_id=device)
    for name in ["ddp", "fsdp", "tensor"] if size == 2 else ["both"]:
        parallel_model.run(name, device)
    dist.destroy_process_group()
    """,
        size=size,
        first=PARALLEL,
        OPENREG_DEVICE_COUNT=str(size),
    )


@pytest.mark.parametrize("of", ["Backend", "Work"])
def test_the_chapter_has_each_method(of: str) -> None:
    header = Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d"
    text = (header / f"{of}.hpp").read_text()
    methods = re.findall(r"^  virtual [^;{(]*?(\w+)\(", text, re.MULTILINE)
    rows = tomllib.loads((ROWS / "distributed.toml").read_text())[of.lower()]
    assert sorted(row["method"] for row in rows) == sorted(methods)


def test_a_barrier_makes_the_host_wait() -> None:
    _ranks.run("""
    begin()
    x = torch.zeros(3, device="openreg")
    work = dist.barrier(async_op=True, device_ids=[rank])
    work.wait()
    assert work.is_completed()
    assert work.exception() is None
    """)


def test_what_a_device_drops_is_told_to_those_who_ask() -> None:
    _ranks.run("""
    begin()
    x = torch.zeros(3, device="openreg")
    index = torch.tensor([9], device="openreg")
    torch.accelerator.synchronize()
    gate = Gate()
    gate.hold()
    torch.gather(x, 0, index)
    work = dist.all_reduce(x, async_op=True)
    gate.open()
    words = "this collective did not run, because the device had"
    refuses(lambda: work.wait(timedelta(seconds=600)), words)
    openreg.reset_device()
    dist.all_reduce(x.fill_(1))
    assert x.tolist() == [2.0] * 3
    """)


@pytest.mark.proves("graph-collectives")
def test_collectives_are_captured_and_replayed() -> None:
    _ranks.run("""
    begin()
    def compute(x):
        dist.all_reduce(x)
        dist.broadcast(x, 1)
        dist.reduce(x, 0)
        x.add_(rank)
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
        both = torch.empty(2 * len(x), device=x.device)
        dist.all_gather_into_tensor(both, x)
        dist.gather(x, parts if rank else None, 1)
        dist.scatter(x, parts if rank else None, 1)
        dist.reduce_scatter_tensor(one := x.clone(), both, dist.ReduceOp.AVG)
        dist.reduce_scatter(one, [x.add(1), one.add(2)])
        dist.all_to_all_single(two := both.clone(), both)
        dist.all_to_all(parts, [x, one])
        work = dist.all_reduce(two, async_op=True)
        one.mul_(3)  # beside it
        work.wait()
        return [x, one, two, both, *parts]
    device = torch.device("openreg")
    for count in 4, 1 << 16:  # carried, and offered
        inputs = [
            torch.arange(float(count)).add(n + rank).to(device)
            for n in range(3)
        ]
        expected = [compute(x.clone()) for x in inputs]
        x = torch.zeros(count, device=device)
        torch.accelerator.synchronize()
        graph = torch.accelerator.Graph()
        with torch.Stream(device), graph:
            found = compute(x)
        torch.accelerator.synchronize()
        assert not x.any()  # nothing has run
        for value, results in zip(inputs, expected):
            x.copy_(value)
            graph.replay()
            compute(value)  # between two replays
            assert all(map(torch.equal, found, results))
    """)


@pytest.mark.proves(
    "graph.rules.barrier",
    "graph.rules.messages",
    "messages.cannot-be-waited-for-by-the-host",
    "messages.cannot-be-captured-since-a-message",
)
def test_a_capture_refuses_what_a_replay_could_not_repeat() -> None:
    _ranks.run("""
    begin()
    stream, x = torch.Stream("openreg"), torch.ones(3, device="openreg")
    dist.all_reduce(x)
    torch.accelerator.synchronize()
    number = "cannot be captured, since a message is told of"
    host = "cannot be waited for by the host in a capture"
    soon = timedelta(seconds=1)
    for words, call in (
        (host, lambda: dist.barrier(device_ids=[rank])),
        (host, lambda: dist.all_reduce(x, async_op=True).wait(soon)),
        (number, lambda: dist.send(x, 1 - rank)),
        (number, lambda: dist.recv(x, 1 - rank)),
    ):
        refused = []
        with contextlib.suppress(RuntimeError):  # the capture is broken
            with stream, torch.accelerator.Graph():
                refused.append(refuses(call, words))
        assert refused, words
    dist.all_reduce(x.fill_(1))
    assert x.tolist() == [2.0] * 3
    """)


@pytest.mark.proves("messages.gloo-by-itself-sends-and-receives")
def test_gloo_by_itself_is_refused_by_a_sentence() -> None:
    _ranks.run("""
    begin("cpu:gloo,openreg:gloo")
    x = torch.ones(3, device="openreg")
    words = "Gloo by itself sends and receives memory of the host alone."
    refuses(lambda: dist.send(x, 1 - rank), words)
    refuses(lambda: dist.recv(x, 1 - rank), words)
    refuses(lambda: dist.recv(x), words)
    refuses(lambda: dist.all_reduce(x), "openreg")
    dist.all_reduce(y := torch.ones(3))
    assert y.tolist() == [2.0] * 3
    """)


@pytest.mark.proves("messages.was-not-timed")
def test_times_are_taken_when_they_are_asked_for() -> None:
    _ranks.run("""
    begin()
    x = torch.ones(1 << 20, device="openreg")
    work = dist.all_reduce(x, async_op=True)
    refuses(lambda: work._get_duration(), "c10d::allreduce was not timed.")
    dist.group.WORLD._enable_collectives_timing()
    gate = Gate()
    gate.hold()  # before the stream's turn comes, no time is counted
    work = dist.all_reduce(x, async_op=True)
    refuses(lambda: work._get_duration())
    gate.open()
    work.wait(timedelta(seconds=600))
    torch.accelerator.synchronize()
    assert 0 < work._get_duration() < 600e3
    """)


@pytest.mark.proves("distributed-abort", "messages.group-was-aborted")
@MODES
def test_an_abort_ends_what_waits_for_another_rank(mode: str) -> None:
    """Of collectives and messages; the other rank never calls."""
    _ranks.run(
        """
    import threading
    if rank == 0:
        os.mkfifo(f"{folder}/done")
    begin()
    x = torch.ones(4, device="openreg")
    dist.all_reduce(x)
    x.cpu()
    calls = (
        lambda group: dist.all_reduce(x, group=group),
        lambda group: dist.recv(x, 1, group=group),
        lambda group: dist.barrier(group, device_ids=[0]),
    )
    groups = [dist.new_group() for _ in calls]
    if rank:
        open(f"{folder}/done").close()  # when the other has opened it, too
        os._exit(0)
    for call, group in zip(calls, groups):
        timer = threading.Timer(0.1, group.abort)
        timer.start()
        def fails():
            call(group)
            x.cpu()
        refuses(fails, "group was aborted.")
        timer.join()
        openreg.reset_device(0)
        refuses(lambda: call(group), "this group was aborted.")
        assert (x.fill_(3) * 2).tolist() == [6.0] * 4
    open(f"{folder}/done", "w").close()
    """,
        OPENREG_LAUNCH=mode,
    )


@pytest.mark.parametrize("mode", ["auto", "async"])
def test_nothing_is_taken_from_a_call_that_was_aborted(mode: str) -> None:
    """Its memory is another's by then; both parts had been offered."""
    _ranks.run(
        """
    import threading
    if rank == 0:
        os.mkfifo(f"{folder}/aborted")
    begin()
    group = dist.new_group(timeout=timedelta(seconds=1))
    part = torch.full((1 << 17,), rank + 1.0, device="openreg")
    whole = torch.zeros(1 << 18, device="openreg")
    torch.accelerator.synchronize()
    def fails():
        dist.all_gather_into_tensor(whole, part, group=group)
        whole.cpu()
    if rank:
        open(f"{folder}/aborted").close()
        refuses(fails, "_allgather_base of Float[131072]", "imed out")
        openreg.reset_device(1)
        assert not whole[: 1 << 17].eq(9).any()
    else:
        timer = threading.Timer(0.1, group.abort)
        timer.start()
        refuses(fails, "group was aborted.")
        timer.join()
        openreg.reset_device(0)
        part.fill_(9)
        whole.zero_()
        torch.accelerator.synchronize()
        open(f"{folder}/aborted", "w").close()
        os.waitpid(children.pop(), 0)
        assert not whole.any()
    """,
        OPENREG_DEVICE_COUNT="2",
        OPENREG_LAUNCH=mode,
    )


def test_ranks_that_lost_different_calls_find_each_other_again() -> None:
    """A device that has failed drops a call which the other rank has run."""
    _ranks.run("""
    begin()
    def make(count, value=1.0):
        return torch.full((count,), value, device="openreg")
    def right():
        for turn in range(3):
            dist.all_reduce(x := make(1 << 16, rank + turn))
            assert x.eq(1 + 2 * turn).all(), turn
    right()
    part, index = make(5 + rank << 14), torch.tensor([9], device="openreg")
    torch.accelerator.synchronize()
    gate = Gate()
    if rank == 0:
        gate.hold()
        torch.gather(part[:3], 0, index)
    work = dist.all_reduce(part, async_op=True)
    gate.open()
    words = "same calls, in one order", "this collective did not run"
    refuses(lambda: work.wait(timedelta(seconds=600)), words[rank == 0])
    openreg.reset_device()
    right()
    """)


def test_a_profile_may_end_before_what_ranks_tell_each_other() -> None:
    """Gloo records its messages, and writes to a profile that is gone."""
    _ranks.run("""
    begin()
    x = torch.ones(3, device="openreg")
    for _ in range(40):
        with torch.autograd.profiler.profile() as profile:
            dist.all_reduce(x, async_op=True)
            dist.all_reduce(x)
        names = {event.name for event in profile.function_events}
        assert not {name for name in names if name.startswith("gloo:")}
        del profile
    """)
