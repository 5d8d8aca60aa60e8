"""Sharing between processes: what torch.multiprocessing sends is one memory."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from _consumer import Consumer
from _device import PATIENCE
from _fresh import prints
from _tensors import ascending
from torch_openreg import _C
from torch_openreg.openreg import sharing


@pytest.fixture(scope="module")
def process() -> Iterator[Consumer]:
    with Consumer() as consumer:
        consumer("import os, torch")
        yield consumer


@pytest.fixture
def consumer(process: Consumer) -> Iterator[Consumer]:
    """The process, which holds nothing before and after."""
    process("kept = set(globals()) | {'kept'}")
    yield process
    process("for name in set(globals()) - kept: del globals()[name]")
    process("del kept")
    assert held(0)


def held(count: int) -> bool:
    """Whether `count` storages are held elsewhere, now or in a moment.

    A thread of multiprocessing has a copy of the descriptor that it passes on,
    and closes it after the receiver has got its own.
    """
    for _ in range(100 * PATIENCE):
        torch.openreg.ipc_collect()
        if len(sharing._leases) == count:
            return True
        time.sleep(0.01)
    return False


# What arrives.


@pytest.mark.proves("checklist.ForkingPickler")
def test_writes_are_seen_on_both_sides(consumer: Consumer) -> None:
    x = ascending(2, 3)
    assert consumer("answer = x.tolist()", x=x) == x.tolist()
    consumer("x.mul_(2); torch.accelerator.synchronize()")
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]
    x.add_(1)
    torch.accelerator.synchronize()
    assert consumer("answer = x.tolist()") == [[1, 3, 5], [7, 9, 11]]


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda x: x,
    "offset": lambda x: x[1:],
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, 6),
    "scalar": lambda x: x[2, 3],
    "bytes": lambda x: x.view(torch.uint8),
    "device 1": lambda x: x.to("openreg:1"),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_arrives_as_it_was(
    consumer: Consumer, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = view(ascending(4, 6))
    shape, device, values = consumer(
        "answer = (x.shape, x.stride(), x.storage_offset(), x.dtype), "
        "str(x.device), x.tolist()",
        x=x,
    )
    assert shape == (x.shape, x.stride(), x.storage_offset(), x.dtype)
    assert (device, values) == (str(x.device), x.tolist())


@pytest.mark.proves("storage-once")
def test_tensors_of_one_storage_have_one_storage_there(
    consumer: Consumer,
) -> None:
    x = ascending(6)
    consumer("", pair=(x[:3], x[3:]))
    assert consumer("answer = later[0].item()", later=x[2:]) == 2
    assert consumer(
        "storages = {t.untyped_storage()._cdata for t in (*pair, later)}\n"
        "answer = len(storages), later.untyped_storage().nbytes()"
    ) == (1, 24)
    consumer("pair[1].zero_(); torch.accelerator.synchronize()")
    assert consumer("answer = later.tolist()") == [2, 0, 0, 0]
    assert x.tolist() == [0, 1, 2, 0, 0, 0]


def of_one_segment(count: int) -> list[torch.Tensor]:
    """Small tensors side by side, also where others have left holes."""
    made = [ascending(4) for _ in range(64)]
    found = [
        [
            x
            for x in made
            if 0 <= x.data_ptr() - at["address"] < at["total_size"]
        ]
        for at in torch.openreg.memory_snapshot(0)
    ]
    few = max(found, key=len)[:count]
    assert len(few) == count
    return few


@pytest.mark.proves("storage.sharing.mapped")
def test_small_tensors_share_one_mapping_there(consumer: Consumer) -> None:
    few = of_one_segment(8)
    segment = consumer(
        "import torch_openreg\n"
        "free = torch.accelerator.get_memory_info()[0]\n"
        "answer = free"
    )
    consumer("", few=few)
    used = segment - consumer("answer = torch.accelerator.get_memory_info()[0]")
    assert [t.tolist() for t in few] == [[0, 1, 2, 3]] * 8
    # Eight mappings of a segment would be eight times as much.
    assert 0 < used <= consumer("answer = free") // 8
    consumer("one = few[0]; del few")
    assert (
        segment - consumer("answer = torch.accelerator.get_memory_info()[0]")
        == used
    )


def test_a_leaf_and_a_parameter_stay_what_they_are(consumer: Consumer) -> None:
    leaf = ascending(3).requires_grad_()
    weight = torch.nn.Parameter(ascending(3))
    frozen = torch.nn.Parameter(torch.arange(3, device="openreg"), False)
    kinds = consumer(
        "answer = [(type(t).__name__, t.requires_grad, t.is_leaf)\n"
        "          for t in (leaf, weight, frozen)]",
        leaf=leaf,
        weight=weight,
        frozen=frozen,
    )
    assert kinds == [
        ("Tensor", True, True),
        ("Parameter", True, True),
        ("Parameter", False, True),
    ]
    consumer("(weight * 2).sum().backward()")
    assert consumer("answer = weight.grad.tolist()") == [2, 2, 2]
    assert weight.grad is None


@pytest.mark.one_mode
def test_a_module_is_trained_by_another_process(consumer: Consumer) -> None:
    model = torch.nn.Linear(2, 1).to("openreg").share_memory()
    expected = (model.weight - 0.5).tolist()
    consumer(
        "model(torch.ones(1, 2, device='openreg')).backward()", model=model
    )
    consumer("torch.optim.SGD(model.parameters(), lr=0.5).step()")
    consumer("torch.accelerator.synchronize()")
    assert model.weight.tolist() == expected


def test_an_empty_tensor_arrives_empty(consumer: Consumer) -> None:
    x = torch.empty(0, 3, device="openreg:1")
    assert consumer("answer = tuple(x.shape), str(x.device)", x=x) == (
        (0, 3),
        "openreg:1",
    )


def test_a_sparse_tensor_arrives(consumer: Consumer) -> None:
    indices = torch.tensor([[0, 2]], device="openreg")
    values = ascending(2)
    answer = consumer(
        "answer = [t.tolist() for t in pair]", pair=(indices, values)
    )
    assert answer == [[[0, 2]], [0, 1]]


@pytest.mark.proves("storage.sharing.views")
def test_conjugate_and_negative_bits_arrive(consumer: Consumer) -> None:
    x = torch.tensor([1 + 2j, 3j], device="openreg")
    views = x.conj(), x.conj().imag, torch.nn.Parameter(x.conj())
    bits, values = consumer(
        "answer = [(v.is_conj(), v.is_neg()) for v in views], "
        "[v.tolist() for v in views]",
        views=views,
    )
    assert bits == [(v.is_conj(), v.is_neg()) for v in views]
    assert bits[:2] == [(True, False), (False, True)]
    assert values == [v.tolist() for v in views]
    consumer("views[0].zero_(); torch.accelerator.synchronize()")
    assert x.tolist() == [0, 0]


class Tagged(torch.Tensor):
    """A subclass, which PyTorch sends by its own __reduce_ex__."""


def test_a_subclass_arrives_as_one(consumer: Consumer) -> None:
    x = ascending(3).as_subclass(Tagged)
    x.tag = "mine"
    code = "answer = type(x).__name__, x.tag, str(x.device), x.tolist()"
    assert consumer(code, x=x) == ("Tagged", "mine", "openreg:0", [0, 1, 2])
    consumer("x.zero_(); torch.accelerator.synchronize()")
    assert x.tolist() == [0, 0, 0]


def test_a_cpu_tensor_is_still_sent_by_pytorch(consumer: Consumer) -> None:
    x = torch.zeros(3)
    consumer("x.add_(1)", x=x)
    assert x.tolist() == [1, 1, 1]


def test_the_consumers_current_device_stays(consumer: Consumer) -> None:
    assert (
        consumer(
            "answer = torch.accelerator.current_device_index()",
            x=ascending(2, device="openreg:1"),
        )
        == 0
    )


# By which way it arrives.


def double(
    queue: mp.Queue[Any], done: mp.Queue[Any], given: torch.Tensor
) -> None:
    given.mul_(2)
    x = queue.get(timeout=PATIENCE)
    x.mul_(2)
    torch.accelerator.synchronize()
    done.put("done")
    done.close()
    done.join_thread()


@pytest.mark.one_mode
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_and_queues_of_a_new_process(method: str) -> None:
    start = mp.get_context(method)
    queue, done = start.Queue(), start.Queue()
    given, put = ascending(3), ascending(4)
    process = start.Process(target=double, args=(queue, done, given))
    process.start()
    queue.put(put)
    assert done.get(timeout=PATIENCE) == "done"
    process.join(PATIENCE)
    assert (given.tolist(), put.tolist()) == ([0, 2, 4], [0, 2, 4, 6])
    queue.close()
    queue.join_thread()
    assert held(0)


def test_what_a_process_sends_to_itself_comes_back() -> None:
    queue = mp.get_context("spawn").SimpleQueue()
    x = ascending(5)
    queue.put(x[2:])
    y = queue.get()
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert held(0)


def test_two_places_of_a_device_have_two_keys() -> None:
    # Blocks of one size in segments of another: places alone tell them apart.
    storages = [ascending(2**n).untyped_storage() for n in (10, 10, 20, 22)]
    sent = [sharing._reduce_storage(storage)[1] for storage in storages]
    places = [key[-2] for *_, key, _ in sent]
    for *_, lease in sent:
        os.close(lease.detach())
    assert held(0)
    starts = [storage.data_ptr() for storage in storages]
    assert [place - places[0] for place in places] == [
        start - starts[0] for start in starts
    ]


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_no_sharing_strategy_matters(consumer: Consumer, strategy: str) -> None:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(strategy)
    x = ascending(2)
    consumer("x.zero_(); torch.accelerator.synchronize()", x=x)
    mp.set_sharing_strategy(before)
    assert x.tolist() == [0, 0]


# How long it lives.


@pytest.mark.proves("storage.sharing.until")
def test_memory_is_not_reused_until_the_consumer_lets_go(
    consumer: Consumer,
) -> None:
    x = ascending(1000)
    consumer("", x=x)
    address = x.data_ptr()
    del x
    y = torch.zeros(1000, device="openreg")
    assert y.data_ptr() != address
    assert consumer("answer = x.sum().item()") == 499500
    assert held(1)
    consumer("del x")
    assert held(0)
    z = torch.zeros(1000, device="openreg")
    assert z.data_ptr() == address


def test_each_consumer_counts(consumer: Consumer) -> None:
    x = ascending(10)
    with Consumer() as second:
        for each in (consumer, second):
            each("", x=x)
        assert held(2)
        consumer("del x")
        assert held(1)
        second("x.zero_(); import torch; torch.accelerator.synchronize()")
    assert held(0)
    assert x.tolist() == [0] * 10


@pytest.mark.proves("storage-consumer-killed", "storage.sharing.killed")
def test_a_consumer_that_is_killed_lets_go(consumer: Consumer) -> None:
    x = ascending(10)
    with Consumer() as victim:
        victim("", x=x)
        assert held(1)
        victim.process.kill()
        victim.process.join()
        assert held(0)
    assert x.tolist() == [*range(10)]


def test_memory_comes_back_at_the_next_sending(consumer: Consumer) -> None:
    for _ in range(20):
        consumer("", x=ascending(10))  # which lets the former one go
    assert len(sharing._leases) < 10


@pytest.mark.proves("storage.sharing.twice")
def test_what_was_sent_twice_is_held_once_there(consumer: Consumer) -> None:
    x = ascending(10)
    consumer("", x=x)
    consumer("", y=x)
    assert held(1)
    consumer("del x")
    assert held(1)
    assert consumer("answer = y.tolist()") == x.tolist()


def produce(pipe: Connection) -> None:
    pipe.send(torch.arange(5.0, device="openreg"))
    pipe.recv()


@pytest.mark.one_mode
@pytest.mark.proves("storage.sharing.sender_ends")
def test_the_memory_outlives_its_producer() -> None:
    start = mp.get_context("spawn")
    ours, theirs = start.Pipe()
    producer = start.Process(target=produce, args=(theirs,))
    producer.start()
    x = ours.recv()
    ours.send("got it")
    producer.join(PATIENCE)
    assert producer.exitcode == 0
    x += 1
    assert x.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.proves("storage.sharing.order")
def test_pending_work_is_done_before_a_tensor_is_sent(
    consumer: Consumer,
) -> None:
    x = torch.zeros(2, device="openreg")
    gate = torch.openreg.testing.Gate()
    threading.Timer(0.2, gate.open).start()
    with torch.openreg.stream(torch.openreg.Stream()):
        gate.hold()
        x.add_(1)
    # Sent by a thread whose current stream is another.
    assert consumer("answer = x.tolist()", x=x) == [1, 1]


FREE_EARLY = """
import threading
import time
gate, stream = torch.openreg.testing.Gate(), torch.openreg.Stream()
threading.Timer(0.2, gate.open).start()
with torch.openreg.stream(stream):
    gate.hold()
    y = x + 1
x.record_stream(stream)
del x
stream.synchronize()
answer = y.tolist()
"""


def test_a_consumer_lets_go_when_its_work_is_done(consumer: Consumer) -> None:
    assert consumer(FREE_EARLY, x=ascending(3)) == [1, 2, 3]
    assert held(0)


# What is refused.


@pytest.mark.proves(
    "messages.attempted-to-send-openreg-tensor-received",
    "storage.sharing.sent_on",
)
def test_what_came_from_another_process_is_not_sent_on(
    consumer: Consumer,
) -> None:
    x = ascending(3)
    message = (
        "Attempted to send openreg tensor received from another process; this "
        "is not currently supported. Consider cloning before sending."
    )
    with pytest.raises(RuntimeError, match=message):
        consumer("answer = x", x=x)
    y = consumer("answer = x.clone(); kept_clone = answer")
    assert y.tolist() == [0, 1, 2]
    consumer("kept_clone.zero_(); torch.accelerator.synchronize()")
    assert y.tolist() == [0, 0, 0]


def test_a_result_of_an_operator_is_not_sent() -> None:
    x = ascending(3).requires_grad_() * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize"):
        ForkingPickler.dumps(x)
    assert x.tolist() == [0, 2, 4]


@pytest.mark.proves("storage.sharing.resized")
def test_a_shared_storage_is_not_resized(consumer: Consumer) -> None:
    x = ascending(3)
    resize = "Trying to resize storage that is not resizable"
    consumer("", x=x)
    for change in (
        lambda: x.untyped_storage().resize_(64),
        lambda: x.untyped_storage().resize_(0),
        lambda: x.resize_(20),
        lambda: torch.arange(9.0, device="openreg:0", out=x),
    ):
        with pytest.raises(RuntimeError, match=resize):
            change()
        assert x.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match=resize):
        consumer("x.resize_(20)")
    assert consumer("answer = x.tolist()") == [0, 1, 2]
    assert x.resize_(2).tolist() == [0, 1]


FORKED = """
import os, torch
from multiprocessing.reduction import ForkingPickler
x = torch.ones(2, device="openreg")
if os.fork() == 0:
    for use in (
        lambda: ForkingPickler.dumps(x),
        lambda: torch.openreg.ipc_collect(),
    ):
        try:
            use()
        except RuntimeError as error:
            print(error, flush=True)
    os._exit(0)
os.wait()
print(x.tolist())
"""


@pytest.mark.one_mode
def test_a_forked_child_can_neither_send_nor_collect() -> None:
    refusal = (
        "Cannot re-initialize openreg in forked subprocess. To use openreg "
        "with multiprocessing, you must use the 'spawn' start method"
    )
    lines = prints(FORKED).splitlines()
    assert lines == [refusal, refusal, "[1.0, 1.0]"]


@pytest.mark.one_mode
@pytest.mark.proves("storage.sharing.forked")
def test_a_process_started_by_fork_cannot_use_what_it_inherits() -> None:
    out = prints("""
        import torch, torch.multiprocessing as mp
        def use(x, queue):
            try:
                x.add_(1)
            except RuntimeError as error:
                queue.put(str(error))
        start = mp.get_context("fork")
        queue = start.SimpleQueue()
        x = torch.ones(2, device="openreg")
        child = start.Process(target=use, args=(x, queue))
        child.start()
        print(queue.get()[:50])
        child.join()
        print(x.tolist())
        """)
    assert out == (
        "Cannot re-initialize openreg in forked subprocess.\n[1.0, 1.0]\n"
    )


@pytest.mark.proves("messages.is-not-within-a-segment")
def test_a_torn_message_opens_nothing() -> None:
    _, arguments = sharing._reduce_storage(ascending(4).untyped_storage())
    _, segment, start, size, _, lease = arguments
    theirs = socket.socket(fileno=lease.detach())
    _, (memory,), _, _ = socket.recv_fds(theirs, 16, 1)
    free = torch.accelerator.get_memory_info()
    for (device, place, begin, count), message in (
        ((9, (memory, *segment), start, size), "device index is out of range"),
        ((0, (-1, *segment), start, size), "orErrorInvalidResourceHandle"),
        ((0, (memory, 1, 8), 0, 8), "orErrorInvalidValue"),
        ((0, (memory, *segment), segment[1], 1), "is not within a segment"),
        ((0, (memory, *segment), 0, 2**63), "is not within a segment"),
    ):
        with pytest.raises(RuntimeError, match=message):
            _C._open_storage(device, place, begin, count, lease=theirs.fileno())
        assert select.select([theirs], [], [], 0)[0] == []  # still open
    assert torch.accelerator.get_memory_info() == free
    os.close(memory)
    theirs.close()
    assert held(0)


# What torch.cuda's users know.


@pytest.mark.proves("storage.sharing.is_shared")
def test_a_device_tensor_is_always_shared() -> None:
    x = ascending(3)
    address = x.data_ptr()
    assert x.is_shared()
    assert x.share_memory_() is x
    assert x.untyped_storage().share_memory_().is_shared()
    assert (x.is_shared(), x.data_ptr()) == (True, address)
    assert x.resize_(100).is_shared()  # which has not been sent


def test_plain_pickles_hold_the_bytes_themselves(consumer: Consumer) -> None:
    x = ascending(3)
    consumer("", x=x)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        x.add_(1)
        assert y.device == x.device
        x.sub_(1)
        assert y.tolist() == [0, 1, 2]
    saved = io.BytesIO()
    torch.save(x, saved)
    saved.seek(0)
    assert torch.load(saved).tolist() == [0, 1, 2]


@pytest.mark.one_mode
def test_collecting_with_nothing_shared_does_nothing() -> None:
    gc.collect()
    torch.openreg.ipc_collect()
    assert not sharing._leases
