"""torch.compile on the device, through Inductor, and what it is told."""

import copy
import ctypes
import os
import random
import struct
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

import _examples
import _fresh
from torch_openreg import _C
from torch_openreg.openreg.testing import Gate, trace

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled remains; on two cores a helper process costs more."""
    with torch._inductor.config.patch(compile_threads=1):
        yield
    torch._dynamo.reset()


def to(values: Any, device: str) -> Any:
    return tree_map_only(Tensor, lambda x: x.to(device), values)


def looks(result: Any) -> list[Any]:
    return [
        (x.shape, x.stride(), x.dtype, x.device)
        for x in tree_leaves(result)
        if isinstance(x, Tensor)
    ]


def check_fake(operator: Callable[..., Any], *args: Any) -> Any:
    """The result of real tensors, which fakes must look like."""
    args = to(args, "openreg")
    real = operator(*args)
    with FakeTensorMode() as mode:
        fakes = tree_map_only(Tensor, mode.from_tensor, args)
        assert looks(operator(*fakes)) == looks(real)
    return real


@pytest.mark.one_mode
@pytest.mark.proves("compile-fakes")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_fake_convolution_has_the_strides_of_a_real_one(dim, transposed):
    last = [None, torch.channels_last, torch.channels_last_3d][dim - 1]

    def make(shape: list[int], is_last: bool) -> Tensor:
        x = torch.randn(shape)
        if is_last and last is None:
            return x.mT.contiguous().mT
        return x.to(memory_format=last) if is_last else x

    options = [1] * dim, [0] * dim, [1] * dim, transposed, [0] * dim, 1
    for x_last, weight_last in product([False, True], repeat=2):
        x = make([2, 3] + [4] * dim, x_last)
        shape = [3, 4] if transposed else [4, 3]
        weight = make(shape + [3] * dim, weight_last)
        out = check_fake(aten.convolution, x, weight, None, *options)
        for grad_last in False, True:
            grad = make([*out.shape], grad_last)
            asked = grad, x, weight, [4], *options, [True] * 3
            check_fake(aten.convolution_backward, *asked)


@pytest.mark.one_mode
@pytest.mark.parametrize("training", [False, True])
def test_a_fake_batch_norm_has_the_results_of_a_real_one(training):
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    stats = tuple(torch.rand(3) for _ in range(4))
    for operator in aten.native_batch_norm, aten._native_batch_norm_legit:
        check_fake(operator, x, *stats, training, 0.1, 1e-5)
    for operator in (
        aten._batch_norm_no_update,
        aten._native_batch_norm_legit_no_training,
    ):
        check_fake(operator, x, *stats, 0.1, 1e-5)


@pytest.mark.one_mode
def test_fake_statistics_have_the_dtype_of_real_ones():
    x, stats = torch.randn(2, 3, 4).bfloat16(), torch.rand(3).bfloat16()
    check_fake(aten.native_layer_norm, x, [4], None, None, 1e-5)
    check_fake(aten._batch_norm_with_update, x, *[stats] * 4, 0.1, 1e-5)
    check_fake(
        aten._native_batch_norm_legit.no_stats, x, None, None, True, 0.1, 1e-5
    )


@pytest.mark.one_mode
def test_a_fake_list_of_indices_has_the_strides_of_a_real_one():
    for x in torch.ones(()), torch.ones(0, 3), torch.ones(2, 3):
        check_fake(lambda x: torch.nonzero_static(x, size=4), x)


@pytest.mark.one_mode
def test_other_devices_keep_their_fakes():
    x = torch.randn(1, 2, 4, 4).to(memory_format=torch.channels_last)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        assert F.conv2d(fake, fake).device.type == "cpu"
        on_meta = F.conv2d(fake.to("meta"), fake.to("meta"))
        assert on_meta.device.type == "meta"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_convolution_in_channels_last_is_compiled(backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    net = net.to("openreg", memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6, device="openreg")
    x = x.to(memory_format=torch.channels_last)
    other = copy.deepcopy(net)
    compiled = torch.compile(net, backend=backend)

    def step(model: Callable[[Tensor], Tensor]) -> Tensor:
        out = model(x)
        out.permute(0, 2, 3, 1).reshape(-1).square().mean().backward()
        return out

    out, expected = step(compiled), step(other)
    torch.testing.assert_close(out, expected)
    assert looks(out) == looks(expected)
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
        assert looks(mine.grad) == looks(theirs.grad)


def chain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Elements, a reduction, a constant, arange and a masked load."""
    z = (x.sin() + y * 2).relu() + torch.tensor([1.0, 2.0, 3.0]).to(x.device)
    padded = F.pad(z, (1, 2)) * torch.arange(6, device=x.device)
    return padded, z.sum(-1)


@pytest.mark.proves(
    "compile-launch",
    "checklist.register_interface_for_device",
    "checklist.register_backend_for_device",
)
@pytest.mark.parametrize("place", ["openreg:0", "openreg:1", "side stream"])
def test_a_graph_runs_on_its_device_and_the_current_stream(place):
    device = place if ":" in place else "openreg:0"
    stream = torch.accelerator.current_stream(device)
    if place == "side stream":
        stream = torch.Stream(device)
    x, y = torch.randn(2, 4, 3, device=device)
    compiled = torch.compile(chain, fullgraph=True)
    torch.accelerator.synchronize(device)
    with stream:
        compiled(x, y)
        stream.synchronize()
        with trace() as records:
            out = compiled(x, y)
            stream.synchronize()
    torch.testing.assert_close(out, chain(x, y))
    assert {t.device for t in out} == {torch.device(device)}
    (end,) = [r for r in records if r.phase == "end" and "fused" in r.name]
    assert end.name.startswith("openreg_fused_")
    assert end.kind == "kernel"
    assert end.device == stream.device_index
    assert (end.stream != 0) == (place == "side stream")


@pytest.mark.queued
def test_a_compiled_kernel_waits_for_its_stream():
    x = torch.zeros(3, device="openreg")
    compiled = torch.compile(lambda x: x.add_(1).sum(), fullgraph=True)
    compiled(x)
    gate = Gate()
    gate.hold()
    total = compiled(x)
    x.mul_(10)
    gate.open()
    assert total.item() == 6
    assert x.tolist() == [20] * 3


def test_views_mutation_and_tensors_of_the_host():
    number, index = torch.tensor(3.0), torch.tensor([1, 0])

    def function(x: Tensor, y: Tensor, number: Tensor, index: Tensor) -> Any:
        view = x[1:]
        view.mul_(2)
        y.add_(x.sum())
        # On the left, on the right, and in the second operand of a second.
        return number * x, x - number, x / number.exp(), x[index], view.t()

    x, y = torch.randn(3, 3, device="openreg"), torch.ones(2, device="openreg")
    expected = function(x.clone(), y.clone(), number, index)
    got = torch.compile(function, fullgraph=True)(x, y, number, index)
    torch.testing.assert_close(got, expected)
    assert got[-1].data_ptr() == x[1:].data_ptr()
    torch.testing.assert_close(y, 1 + x.sum().expand(2))


def test_a_compiled_kernel_refuses_an_index_where_it_finds_it():
    table = torch.ones(2, 3, device="openreg")
    compiled = torch.compile(lambda table, i: table[i] * 2, fullgraph=True)
    indices = torch.tensor([0, 1, 2], device="openreg")
    compiled(table, indices[:2])
    with pytest.raises(RuntimeError, match="index out of bounds") as caught:
        compiled(table, indices)
        torch.accelerator.synchronize()
    # Only where it was queued does the device fail.
    failed = os.environ.get("OPENREG_LAUNCH") == "async"
    assert isinstance(caught.value, torch.AcceleratorError) == failed
    if failed:
        torch.openreg.reset_device()


def loss_of(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    with torch.autocast("openreg", torch.bfloat16):
        loss: Tensor = F.cross_entropy(net(x), target)
    return loss


@pytest.mark.proves("compile-train")
def test_a_compiled_training_step_trains():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    nets = net.to("openreg"), copy.deepcopy(net)
    x = torch.randn(4, 6, device="openreg")
    target = torch.tensor([0, 1, 2, 0], device="openreg")
    losses: list[list[float]] = []
    for net, wrap in zip(nets, (torch.compile, lambda f: f), strict=True):
        # The counters of Adam are on the CPU.
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        loss_now, step = wrap(loss_of), wrap(optimizer.step)
        losses.append([])
        for _ in range(4):
            loss = loss_now(net, x, target)
            loss.backward()
            step()
            optimizer.zero_grad()
            losses[-1].append(loss.item())
    torch.testing.assert_close(*losses, rtol=0.02, atol=0.02)
    assert losses[0][-1] < losses[0][0] / 2


@pytest.mark.one_mode
def test_elements_and_reductions_of_other_shapes_share_a_graph():
    def normalized(x: Tensor) -> Tensor:
        rows = x.view(-1, 8)
        scale = torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6)
        return ((rows * scale).view(x.shape) * 2 + x).relu()

    x = torch.randn(4, 32, device="openreg")
    assert torch._inductor.config.loop_reindexing_after_fusion
    compiled = torch.compile(normalized, fullgraph=True)
    torch.testing.assert_close(compiled(x), normalized(x))


@pytest.mark.one_mode
def test_a_result_is_allocated_as_asked():
    made = _C._empty_strided((2, 3), (1, 2), torch.bfloat16, 1)
    assert made.shape == (2, 3)
    assert made.stride() == (1, 2)
    assert made.dtype == torch.bfloat16
    assert made.device == torch.device("openreg:1")
    with pytest.raises(RuntimeError, match="cast Python instance of type"):
        _C._empty_strided((2, "3"), (1, 2), torch.bfloat16, 1)
    with pytest.raises(RuntimeError, match="device index is out of range"):
        _C._empty_strided((2,), (1,), torch.bool, 7)


@pytest.mark.one_mode
def test_shapes_may_change():
    compiled = torch.compile(
        lambda x: (x * x.shape[0]).sum(0), dynamic=True, fullgraph=True
    )
    for n in 3, 7, 12:
        x = torch.randn(n, 5, device="openreg")
        torch.testing.assert_close(compiled(x), (x * n).sum(0))


def draw(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.rand_like(x), F.dropout(x, 0.5), torch.bernoulli(x)


@pytest.mark.one_mode
@pytest.mark.proves("compile-random")
@pytest.mark.parametrize("as_eager", [False, True])
def test_equal_seeds_draw_what_the_cpu_draws(as_eager):
    x = torch.rand(4, 4)
    with torch._inductor.config.patch(fallback_random=as_eager):
        drawn = []
        for device in "openreg", "cpu":
            compiled = draw if device == "cpu" and as_eager else None
            compiled = compiled or torch.compile(draw, fullgraph=True)
            torch.manual_seed(5)
            drawn.append(to(compiled(x.to(device)), "cpu"))
    torch.testing.assert_close(*drawn, rtol=0, atol=0)


def test_branches_custom_operators_and_streams():
    side = torch.Stream("openreg")

    @torch.library.custom_op("test_compile::bump", mutates_args=("x",))
    def bump(x: Tensor) -> None:
        x.add_(1)

    def function(x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        bump(y)
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            z = y * 2
        torch.accelerator.current_stream().wait_stream(side)
        return z + y

    compiled = torch.compile(function, fullgraph=True)
    for sign in 1, -1:
        x = sign * torch.rand(3, device="openreg")
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.one_mode
def test_a_graph_break_leaves_two_graphs():
    def function(x: Tensor) -> Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    found = torch._dynamo.explain(function)(torch.ones(2, device="openreg"))
    assert (found.graph_count, found.graph_break_count) == (2, 1)


def test_a_number_that_the_host_reads_is_an_argument_of_a_kernel():
    def function(x: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        return x * factor.item(), x[x > 1] + 1

    x = torch.tensor([1.0, 2.0, 3.0], device="openreg")
    factor = torch.tensor(1.5, device="openreg")
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        compiled = torch.compile(function, fullgraph=True)
        got = compiled(x, factor)
    torch.testing.assert_close(got, function(x, factor))


@pytest.mark.proves("messages.expects-all-tensors-on-one")
def test_a_kernel_refuses_tensors_that_it_cannot_reach():
    kernel = _C._compiled_kernel("never_launched", 0)
    says = "expects all tensors on one openreg device"
    with pytest.raises(RuntimeError, match=says):
        kernel(torch.ones(2))
    with pytest.raises(RuntimeError, match="got one on openreg:1"):
        kernel(*(torch.ones(2, device=f"openreg:{i}") for i in (0, 1)))


@pytest.mark.one_mode
@pytest.mark.proves("messages.has-no-attribute")
def test_the_module_has_no_name_that_nobody_asked_for():
    with pytest.raises(
        AttributeError, match="has no attribute 'TritonScheduli"
    ):
        torch.openreg.TritonScheduling  # noqa: B018


@pytest.mark.proves("messages.a-compiled-graph-here-is-python")
def test_a_graph_in_cpp_alone_is_refused():
    with torch._inductor.config.patch(cpp_wrapper=True):
        compiled = torch.compile(lambda x: x + 1)
        with pytest.raises(Exception, match="a compiled graph here is Python"):
            compiled(torch.ones(1, device="openreg"))


@pytest.mark.one_mode
@pytest.mark.proves(
    "messages.a-compiled-graph-here-is-python", "limits.aot_inductor"
)
@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # torch.export's own
def test_aot_inductor_is_refused(tmp_path):
    net, x = nn.ReLU(), torch.ones(1, device="openreg")
    with pytest.raises(Exception, match="a compiled graph here is Python"):
        torch._inductor.aoti_compile_and_package(
            torch.export.export(net, (x,)),
            package_path=str(tmp_path / "net.pt2"),
        )


@pytest.mark.one_mode
def test_max_autotune_computes_as_eager_mode_does():
    net = nn.Linear(3, 4).to("openreg")
    x = torch.randn(2, 3, device="openreg")
    tuned = torch.compile(net, mode="max-autotune", fullgraph=True)
    torch.testing.assert_close(tuned(x), net(x))


@pytest.mark.one_mode
def test_the_graph_of_autograd_is_compiled_as_well():
    weight = torch.ones(3, device="openreg", requires_grad=True)
    x = torch.randn(2, 3, device="openreg")

    def step(x: Tensor) -> None:
        (x * weight).sin().sum().backward()

    step(x)
    expected, weight.grad = weight.grad, None
    counters.clear()
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step)(x)
    assert counters["compiled_autograd"]["captures"] == 1
    torch.testing.assert_close(weight.grad, expected)


CACHED = """
import os, sys, torch

for cache in "FX_GRAPH", "AUTOGRAD":
    os.environ[f"TORCHINDUCTOR_{cache}_CACHE"] = "1"
import torch._inductor.compile_fx
from torch._dynamo.utils import counters
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.fx_passes import joint_graph

# Both processes need these, which take seconds and use no device.
pick_vec_isa()
joint_graph.lazy_init()

def compile_for_two_versions():
    from torch_openreg.inductor import config

    factor, x = float(sys.argv[1]), torch.ones(2, device="openreg")
    for config.version in (config.version, "newer"):
        torch._dynamo.reset()
        counters.clear()
        made = torch.compile(lambda x: x * factor + x)(x)
        assert made.allclose(torch.full_like(made, factor + 1))
        print(sum(
            counters[of][kind + "_cache_hit"] for of, kind in (
                ("inductor", "fxgraph"), ("aot_autograd", "autograd")
            )
        ), flush=True)

for _ in range(2):
    if os.fork() == 0:
        compile_for_two_versions()
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.one_mode
@pytest.mark.proves("compile-caches")
def test_another_process_finds_what_this_backend_compiled():
    factor = str(random.random())  # compiled by nobody before
    # Of the graph, and of both passes.
    assert _fresh.prints(CACHED, factor).split() == ["0", "0", "2", "2"]


@pytest.mark.one_mode
@pytest.mark.proves("compile-own")
def test_a_compiler_of_ones_own_compiles_both_passes(capsys):
    _examples.load("own_compiler").main()
    assert capsys.readouterr().out == "True\n10 -> 2\n"
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1))
    net = net.to("openreg")
    x = torch.randn(5, 3, device="openreg", requires_grad=True)
    wanted = [x, *net.parameters()]
    losses = [
        model(x).exp().view(-1).square().mean()
        for model in (torch.compile(net, backend="own"), net)
    ]
    grads = [torch.autograd.grad(loss, wanted) for loss in losses]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*grads)


def reduce_overhead(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, mode="reduce-overhead", fullgraph=True)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found = []
    replay = torch.accelerator.Graph.replay

    def count(graph: torch.accelerator.Graph) -> None:
        found.append(graph)
        replay(graph)

    monkeypatch.setattr(torch.accelerator.Graph, "replay", count)
    return found


@pytest.mark.proves("compile-graphs")
def test_reduce_overhead_replays_both_passes(replays):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    nets = net.to("openreg"), copy.deepcopy(net)
    calls = reduce_overhead(nets[0]), nets[1]
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1) for n in nets]
    losses: list[list[Tensor]] = [[], []]
    for _ in range(8):
        x = torch.randn(5, 3, device="openreg")
        for i, call in enumerate(calls):
            loss = call(x).square().mean()
            loss.backward()
            optimizers[i].step()
            optimizers[i].zero_grad()
            losses[i].append(loss.detach())  # kept: no replay changes it
    torch.testing.assert_close(*losses)
    assert len(replays) >= 2 * 4
    assert replays[-1] is not replays[-2]
    assert replays[-1] is replays[-3]


def test_reduce_overhead_keeps_results_and_changes_inputs(replays):
    call = reduce_overhead(lambda x: (x.add_(1), x * 2))
    inputs = [torch.full((2,), float(i), device="openreg") for i in range(6)]
    results = [call(x)[1] for x in inputs]
    assert [x.tolist() for x in inputs] == [[i + 1.0] * 2 for i in range(6)]
    assert [x.tolist() for x in results] == [
        [i * 2 + 2.0] * 2 for i in range(6)
    ]
    assert len(replays) == 5


@pytest.mark.proves("messages.without-a-graph-of-the-device")
def test_reduce_overhead_says_where_it_uses_no_graph(replays):
    says = "without a graph of the device"
    table = torch.ones(3, 2, device="openreg")
    indices = torch.tensor([[0, 1]], device="openreg")
    bag = reduce_overhead(
        lambda i, table: F.embedding_bag(i, table, mode="sum")
    )
    bag(indices, table)
    with pytest.warns(UserWarning, match=f"{says}.*embedding_bag"):
        bag(indices, table)
    assert bag(indices, table).tolist() == [[2, 2]]
    with pytest.warns(UserWarning, match=f"{says}: it.*: cpu, openreg:0$"):
        reduce_overhead(lambda x: x.cpu() + 1)(table)
    assert not replays


def test_reduce_overhead_gives_up_where_everything_moves(replays):
    call = reduce_overhead(lambda *xs: sum(xs[1:], xs[0]) * 2)
    xs = [torch.ones(2, device="openreg") for _ in range(9)]
    for i in (0, 0, *range(7)):
        xs[i] = xs[i].clone() if replays else xs[i]
        assert call(*xs).tolist() == [18, 18]
    with pytest.warns(UserWarning, match="elsewhere at each call"):
        call(*xs[:8], xs[8].clone())


def test_a_kernel_gets_its_arguments_as_words():
    from torch_openreg.inductor import scheduling  # which takes seconds

    seen: list[int] = []

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64))
    def kernel(words):
        seen.extend(words[:3])

    entry = ctypes.cast(kernel, ctypes.c_void_p).value
    launch = _C._compiled_kernel("openreg_words", entry)
    launch(torch.ones(1, device="openreg"), 7, 2.5)
    torch.accelerator.synchronize()
    assert seen[1] == 7
    assert struct.pack("q", seen[2]) == struct.pack("d", 2.5)
    written = scheduling._write_entry(["float*", "double", "long"])
    assert "const double&>(words[1]),\n      words[2]);" in written


def test_lines_of_a_graph_that_name_the_device_run():
    from torch_openreg.inductor import wrapper

    lines, names = wrapper.OpOverrides(), {"torch": torch}
    exec(lines.import_get_raw_stream_as("raw_stream"), names)
    assert names["raw_stream"](1) == _C._current_stream(1)
    with eval(lines.device_guard(1), names):
        assert torch.openreg.current_device() == 1
    assert torch.openreg.current_device() == 0
    exec(lines.set_device(1), names)
    assert torch.openreg.current_device() == 1
    torch.openreg.set_device(0)
    exec(lines.synchronize(), names)
