"""torch.accelerator.Graph: what is captured, replayed, and refused."""

import copy
import gc
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Graph = torch.accelerator.Graph


@pytest.fixture
def stream() -> Iterator[torch.Stream]:
    made = torch.Stream("openreg")
    yield made
    made.synchronize()
    # Whatever broke a capture, the device, the stream and the pool serve.
    with made:
        x = torch.ones(3, device="openreg")
        x.add_(1)
    made.synchronize()
    assert x.tolist() == [2, 2, 2]


def on_device(*values: float) -> Tensor:
    return torch.tensor(values, device="openreg")


def replay(graph: Graph) -> None:
    graph.replay()
    torch.accelerator.synchronize()


@pytest.mark.proves(
    "graph-capture",
    "graph-replay",
    "accelerator.Graph",
    "checklist.GraphImplRegistry",
)
def test_a_capture_runs_nothing_and_each_replay_all(stream):
    x, y = on_device(1, 2), on_device(0, 0)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        y.copy_(x)
        y.add_(1)
        z = y * 2
    torch.accelerator.synchronize()
    assert y.tolist() == [0, 0]
    for start in (1, 10):
        x.fill_(start)
        torch.accelerator.synchronize()
        replay(graph)
        assert y.tolist() == [start + 1] * 2
        assert z.tolist() == [2 * start + 2] * 2


@pytest.mark.proves("graph-host-numbers")
def test_a_number_of_the_hosts_is_that_of_the_capture(stream):
    x, y, rate = on_device(1, 2), on_device(0, 0), 3
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        y.copy_(x * rate)
    rate = 5
    replay(graph)
    assert y.tolist() == [3, 6]


def test_a_graph_is_replayed_on_any_stream_in_its_order(stream):
    x = on_device(0)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        x.add_(1)
    with stream:
        for _ in range(3):
            graph.replay()
            x.mul_(2)
    stream.synchronize()
    assert x.tolist() == [14]
    replay(graph)
    assert x.tolist() == [15]


# Without results, with a device among the arguments, with one result.
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cummax(x, 0).values,
        lambda x: torch.tril_indices(2, 2, device=x.device) * x.sum(),
        lambda x: torch.ops.aten.native_dropout_backward(x, x > 1, 2.0),
        # Of a kernel that takes what it reads for contiguous.
        lambda x: torch.native_group_norm(
            x.float().expand(1, 2, 3).transpose(1, 2),
            *(None, None, 1, 3, 2, 3, 1e-5),
        )[0],
    ],
)
def test_kernels_of_every_form_are_replayed(call, stream):
    x = on_device(1, 2, 1)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        result = call(x)
    x.copy_(torch.tensor([3.0, 1.0, 4.0]))
    replay(graph)
    assert torch.equal(result, call(x))


def step(model: nn.Module, optimizer: Any, x: Tensor, target: Tensor) -> Tensor:
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    optimizer.step()
    return loss


def test_a_training_step_is_replayed_bit_for_bit(stream):
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(),
        nn.Linear(108, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4),
    ).to("openreg")  # fmt: skip
    eager = copy.deepcopy(model)
    optimizers = [
        torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9)
        for each in (model, eager)
    ]
    x = torch.rand(5, 1, 8, 8, device="openreg")
    target = torch.randint(4, (5,), device="openreg")
    with stream:
        step(model, optimizers[0], x, target)
    stream.synchronize()
    step(eager, optimizers[1], x, target)
    graph = Graph()
    with stream, graph:
        loss = step(model, optimizers[0], x, target)
    for _ in range(3):
        x.copy_(torch.rand(x.shape))
        replay(graph)
        expected = step(eager, optimizers[1], x, target)
        assert torch.equal(loss, expected)
        for ours, theirs in zip(
            model.state_dict().values(),
            eager.state_dict().values(),
            strict=False,
        ):
            assert torch.equal(ours, theirs)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(8, 8, batch_first=True),
    "GRU": lambda: nn.GRU(8, 8, batch_first=True),
    "attention": lambda: nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True
    ),
    "convolution": lambda: nn.ConvTranspose1d(5, 3, 3),
}


@pytest.mark.parametrize("name", MODULES)
def test_both_passes_of_a_module_are_replayed(name, stream):
    module, x = MODULES[name]().to("openreg"), torch.rand(2, 5, 8).to("openreg")

    def both_passes() -> list[Tensor]:
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        y = module(x)
        y = y[0] if isinstance(y, tuple) else y
        y.sum().backward()
        return [y.detach(), *(p.grad for p in module.parameters())]

    with stream:
        both_passes()
    stream.synchronize()
    graph = Graph()
    with stream, graph:
        captured = both_passes()
    x.copy_(torch.rand(x.shape))
    replay(graph)
    captured = [each.clone() for each in captured]
    torch.testing.assert_close(captured, both_passes())


@pytest.mark.proves("graph-random")
def test_random_numbers_advance_as_in_eager_mode(stream):
    def draw() -> list[Tensor]:
        x = torch.rand(4, device="openreg")
        return [x, torch.randn_like(x), nn.functional.dropout(x, 0.5)]

    graph = Graph()
    with stream, graph:
        captured = draw()
    runs = []

    def again() -> list[Tensor]:
        replay(graph)
        return captured

    for once in (again, draw):
        torch.manual_seed(3)
        before = torch.get_rng_state()
        runs.append([[t.tolist() for t in once()] for _ in range(3)])
        assert torch.equal(before, torch.get_rng_state())
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


SEEDS: dict[str, Callable[[torch.Generator], object]] = {
    "torch.manual_seed": lambda generator: torch.manual_seed(1),
    "openreg.manual_seed": lambda generator: torch.openreg.manual_seed(1),
    "openreg.seed": lambda generator: torch.openreg.seed(),
    "get_rng_state": lambda generator: torch.openreg.get_rng_state(),
    "manual_seed": lambda generator: generator.manual_seed(1),
    "seed": lambda generator: generator.seed(),
    "initial_seed": lambda generator: generator.initial_seed(),
    "get_state": lambda generator: generator.get_state(),
    "set_state": lambda generator: generator.set_state(
        torch.Generator().get_state()
    ),
    "clone_state": lambda generator: generator.clone_state(),
}


@pytest.mark.proves(
    "graph.rules.seed", "messages.the-seed-and-the-state-of-a-generator"
)
@pytest.mark.parametrize("how", SEEDS)
def test_a_seed_is_refused_in_a_capture_and_nowhere_else(how, stream):
    generator = torch.Generator("openreg")
    generator.manual_seed(3)
    torch.openreg.manual_seed(3)
    says = "the seed and the state of a generator of device 0"
    graph = Graph()
    with stream, graph:
        with pytest.raises(RuntimeError, match=says):
            SEEDS[how](generator)
        drawn = torch.rand(4, device="openreg")
        # Where this thread captures nothing, it is the host's business.
        torch.Generator("openreg:1").manual_seed(1)
        thread = threading.Thread(target=generator.manual_seed, args=(3,))
        thread.start()
        thread.join()
    replay(graph)
    torch.openreg.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4, device="openreg"))
    SEEDS[how](generator)


def test_streams_that_are_joined_are_captured_together(stream):
    other = torch.Stream("openreg")
    x = on_device(1)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        y = x + 1
        other.wait_stream(stream)
        with other:
            z = y * 10
        w = y * 100
        stream.wait_stream(other)
        result = z + w
    replay(graph)
    assert result.tolist() == [220]


@pytest.mark.proves("graph.rules.unjoined")
def test_a_stream_that_is_not_joined_gives_no_graph(stream):
    other = torch.Stream("openreg")
    x = on_device(1)
    torch.accelerator.synchronize()
    with (
        pytest.raises(RuntimeError, match="was not joined"),
        stream,
        Graph(),
    ):
        other.wait_stream(stream)
        with other:
            x.add_(1)
    other.synchronize()
    assert x.tolist() == [1]


@pytest.mark.proves("graph.rules.default")
def test_the_default_stream_is_refused_and_still_runs(stream):
    x = on_device(1)
    torch.accelerator.synchronize()
    with (
        pytest.raises(RuntimeError, match="what every thread launches"),
        Graph(),
    ):
        pytest.fail("it was captured")
    x.add_(1)
    assert x.tolist() == [2]


def other_thread_synchronizes(x: Tensor) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            torch.accelerator.synchronize()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise errors[0]


def wait_for_another_stream(x: Tensor) -> None:
    event = torch.Stream("openreg").record_event()
    torch.accelerator.current_stream().wait_event(event)


@pytest.mark.proves(
    "graph-refused",
    "graph.rules.item",
    "graph.rules.synchronize",
    "graph.rules.pageable",
    "graph.rules.outside",
    "graph.rules.thread",
    "messages.cannot-be-captured-it-needs",
)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: torch.accelerator.synchronize(),
        lambda x: torch.accelerator.current_stream().synchronize(),
        lambda x: torch.accelerator.current_stream().query(),
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.zeros(2)),
        lambda x: torch.tensor([1.0], device="openreg"),
        wait_for_another_stream,
        other_thread_synchronizes,
    ],
)
def test_what_needs_the_work_done_raises_at_its_line(call, stream):
    x = on_device(1, 2)
    torch.accelerator.synchronize()
    with pytest.raises(RuntimeError) as caught, stream, Graph():
        x.add_(1)
        call(x)
        pytest.fail("nothing was raised")
    said = str(caught.value.__context__)
    assert "cannot be captured: it needs the work of a stream" in said
    assert x.tolist() == [1, 2]


@pytest.mark.proves("graph.rules.shape", "messages.since-only-a-run-would-show")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        torch.unique,
        lambda x: torch.equal(x, x),
        lambda x: x.to_sparse(),
    ],
)
def test_results_of_an_unknown_shape_are_refused(call, stream):
    x = on_device(1, 2)
    torch.accelerator.synchronize()
    says = "cannot be captured, since only a run would show"
    with stream, Graph(), pytest.raises(NotImplementedError, match=says):
        call(x)


@pytest.mark.proves("messages.a-tensor-of-the-hosts-captured")
def test_an_index_of_the_hosts_is_refused(stream):
    x, host = on_device(1, 2), torch.tensor([0, 1])
    torch.accelerator.synchronize()
    says = "cannot be captured: it may have changed, or be gone"
    with stream, Graph():
        for call in (lambda: x[host], lambda: x.index_put_((host,), x)):
            with pytest.raises(NotImplementedError, match=says):
                call()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.proves("graph.rules.parts", "messages.a-tensor-of-layout-captured")
def test_tensors_that_are_not_plain_are_refused(stream):
    x = torch.eye(2, device="openreg").to_sparse()
    torch.accelerator.synchronize()
    says = "cannot be captured; expected a plain one"
    with stream, Graph(), pytest.raises(NotImplementedError, match=says):
        torch.sparse.sum(x)
    rows = torch.eye(2).to_sparse_csr().to("openreg")
    dense = torch.ones(2, 2, device="openreg")
    torch.accelerator.synchronize()
    with stream, Graph(), pytest.raises(NotImplementedError, match=says):
        torch.sparse.mm(rows, dense, "sum")


@pytest.mark.proves(
    "graph.rules.embedding_bag", "messages.pytorch-tells-other-shapes"
)
def test_what_meta_tells_wrongly_is_refused(stream):
    weights = torch.ones(2, 2, device="openreg")
    indices = torch.zeros(1, 2, dtype=torch.long, device="openreg")
    torch.accelerator.synchronize()
    says = "PyTorch tells other shapes of its results"
    with stream, Graph(), pytest.raises(NotImplementedError, match=says):
        nn.functional.embedding_bag(indices, weights)


@pytest.mark.proves("graph-freed", "messages.was-freed-since-the-capture")
@pytest.mark.parametrize("how", ["freed", "moved"])
def test_a_replay_looks_for_what_it_uses(how, stream):
    x, y = on_device(1, 2), on_device(0, 0)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        y.copy_(x)
    if how == "freed":
        del x
        gc.collect()
    else:
        x.resize_(1 << 16)
    with pytest.raises(RuntimeError, match="was freed since the capture"):
        graph.replay()


def test_pinned_memory_is_an_end_of_a_captured_copy(stream):
    x = on_device(0, 0)
    pinned = torch.tensor([1.0, 2.0]).pin_memory()
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        x.copy_(pinned, non_blocking=True)
    pinned.fill_(3)
    replay(graph)
    assert x.tolist() == [3, 3]
    del pinned
    with pytest.raises(RuntimeError, match="was freed since the capture"):
        graph.replay()


def test_what_a_graph_made_is_nobody_elses(stream):
    x = on_device(1, 2)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        address = (x + 1).data_ptr()
        y = (x + 2) * 2
    others = [torch.zeros(2, device="openreg") for _ in range(64)]
    with stream:
        others += [torch.zeros(2, device="openreg") for _ in range(64)]
    replay(graph)
    assert y.tolist() == [6, 8]
    assert all(other.tolist() == [0, 0] for other in others)
    assert address not in {other.data_ptr() for other in others}


@pytest.mark.proves("graph-pool")
def test_graphs_can_share_a_pool(stream):
    x = on_device(1, 2)
    torch.accelerator.synchronize()
    first = Graph()
    with stream, first:
        address = (x + 1).data_ptr()
    second = Graph(pool=first.pool())
    with stream, second:
        y = x + 3
    assert second.pool() == first.pool()
    assert y.data_ptr() == address
    replay(second)
    assert y.tolist() == [4, 5]
    third = Graph()
    with stream, third:
        z = x + 4
    assert third.pool() != first.pool()
    assert z.data_ptr() != address


def test_memory_of_a_graph_is_given_back_after_its_reset(stream):
    x = torch.ones(1 << 20, device="openreg")
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    before = torch.accelerator.memory_reserved()
    graph = Graph()
    with stream, graph:
        x + 1
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() > before
    graph.reset()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == before


def on_another_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.parametrize("where", [on_another_thread, lambda call: call()])
def test_the_cache_is_emptied_without_breaking_a_capture(where, stream):
    x = on_device(1, 2)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        y = x + 1
        on_another_thread(lambda: torch.empty(1 << 22, device="openreg"))
        where(torch.accelerator.empty_cache)
        z = y * 2
    replay(graph)
    assert z.tolist() == [4, 6]


@pytest.mark.proves("graph-full")
def test_a_capture_goes_on_when_the_device_was_full(stream):
    x = on_device(1, 2)
    on_another_thread(lambda: torch.empty(1 << 22, device="openreg"))
    torch.accelerator.synchronize()
    _, total = torch.accelerator.get_memory_info()
    graph = Graph()
    with stream, graph:
        y = x + 1
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
            torch.empty(total, dtype=torch.uint8, device="openreg")
        z = y * 2
    replay(graph)
    assert z.tolist() == [4, 6]


def test_segments_of_a_private_pool_say_so(stream):
    graph = Graph()
    with stream, graph:
        y = torch.empty(2, device="openreg")
    owners = {
        segment["segment_pool_id"]: segment["stream"]
        for segment in torch.openreg.memory_snapshot(0)
        if segment["address"] <= y.data_ptr()
        and y.data_ptr() < segment["address"] + segment["total_size"]
    }
    assert owners == {graph.pool(): 0}


def test_a_graph_that_was_refused_ends_no_others_capture(stream):
    x = on_device(1)
    torch.accelerator.synchronize()
    first, second = Graph(), Graph()
    with stream, first:
        x.add_(1)
        with pytest.raises(RuntimeError, match="being captured already"):
            second.capture_begin()
        second.reset()
        with pytest.raises(RuntimeError, match="without capture_begin"):
            second.capture_end()
        del second
        gc.collect()
        x.mul_(5)
    replay(first)
    assert x.tolist() == [10]


def raises(says: str) -> Any:
    return pytest.raises(RuntimeError, match=re.escape(says))


@pytest.mark.proves(
    "messages.this-graph-has-captured-nothing",
    "messages.pool-before-capture-begin",
    "messages.capture-end-without",
    "messages.reset-in-a-capture",
    "messages.this-graph-has-captured-something",
    "messages.a-graphs-pool-is",
)
def test_a_graph_says_what_is_missing(stream):
    graph = Graph()
    for use in (graph.replay, graph.instantiate):
        with raises("this graph has captured nothing"):
            use()
    with raises("pool() before capture_begin()"):
        graph.pool()
    with raises("capture_end() without capture_begin()"):
        graph.capture_end()
    with stream, graph, raises("reset() in a capture"):
        graph.reset()
    with raises("this graph has captured something"):
        graph.capture_begin()
    graph.reset()
    with stream, graph:
        pass
    graph.replay()
    with raises("a graph's pool is what pool() of another graph"):
        Graph(pool=(0, 7)).capture_begin()


def test_a_graph_that_is_dropped_in_its_capture_ends_it(stream):
    graph = Graph()
    with stream:
        graph.capture_begin()
        del graph
        gc.collect()


def test_keep_graph_makes_it_ready_when_asked(stream):
    x = on_device(1)
    torch.accelerator.synchronize()
    graph = Graph(keep_graph=True)
    with stream, graph:
        x.add_(1)
    graph.instantiate()
    replay(graph)
    assert x.tolist() == [2]


@pytest.mark.proves("messages.call-enable-debug-mode")
def test_a_dump_has_every_node_and_edge(stream, tmp_path: Path):
    x = on_device(1)
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        x.add_(1)
        x.mul_(2)
    with raises("call enable_debug_mode() before debug_dump()"):
        graph.debug_dump(str(tmp_path / "x.dot"))
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "x.dot"))
    text = (tmp_path / "x.dot").read_text()
    assert re.findall(r'label="([\w:.]+)\\n', text) == [
        "aten::add_.Tensor",
        "aten::mul_.Tensor",
    ]
    assert "0 -> 1;" in text
    with pytest.raises(RuntimeError, match="cannot write to"):
        graph.debug_dump(str(tmp_path / "no" / "x.dot"))


def test_a_kernel_that_fails_in_a_replay_is_named(stream):
    x, index = on_device(1, 2, 3), torch.tensor([0], device="openreg")
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph:
        picked = x.index_select(0, index)
    replay(graph)
    assert picked.tolist() == [1]
    index.fill_(7)
    torch.accelerator.synchronize()
    with pytest.raises(RuntimeError, match="aten::index_select"):
        replay(graph)
    torch.openreg.reset_device()
    index.fill_(2)
    torch.accelerator.synchronize()
    replay(graph)
    assert picked.tolist() == [3]


@pytest.mark.proves(
    "graph.rules.lazy", "messages.the-first-write-to-a-lazy-clone"
)
@pytest.mark.parametrize("form", ["add_", "cumsum_", "fill_", "copy_"])
def test_the_copy_that_parts_a_lazy_clone_is_not_captured(stream, form):
    write: dict[str, Callable[[Tensor], Tensor]] = {
        "add_": lambda x: x.add_(1),
        "cumsum_": lambda x: x.cumsum_(0),
        "fill_": lambda x: x.fill_(7),
        "copy_": lambda x: x.copy_(torch.ones(1, device="openreg")),
    }
    x = on_device(1, 2)
    torch.accelerator.synchronize()
    clone = torch._lazy_clone(x)
    graph = Graph()
    with stream, graph:
        with pytest.raises(RuntimeError, match="the first write to a lazy clo"):
            write[form](clone)
        read = clone + 1
    replay(graph)
    assert read.tolist() == [2, 3]
    clone.mul_(2)  # which parts them
    torch.accelerator.synchronize()
    written = Graph()
    with stream, written:
        write[form](clone)
    expected = write[form](on_device(2, 4))
    x.fill_(100)
    torch.accelerator.synchronize()
    replay(written)
    assert clone.tolist() == expected.tolist()


def test_a_graph_of_another_device(stream):
    with torch.accelerator.device_index(1):
        x = torch.ones(2, device="openreg:1")
        torch.accelerator.synchronize()
        graph = Graph()
        with torch.Stream("openreg:1"), graph:
            y = x + 1
    graph.replay()
    torch.accelerator.synchronize(1)
    assert y.tolist() == [2, 2]


def test_batch_norm_in_eval_mode(stream):
    norm = nn.BatchNorm1d(3).to("openreg").eval()
    x = torch.rand(4, 3, device="openreg")
    torch.accelerator.synchronize()
    graph = Graph()
    with stream, graph, torch.no_grad():
        y = norm(x)
    replay(graph)
    assert torch.equal(y, norm(x))
