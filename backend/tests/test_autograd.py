"""What autograd does with a device: its threads, hooks and graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd import Function
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

# PyTorch's own forward mode compiles its rules by it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`")

acc = torch.accelerator
SEEN: list[tuple[int, Any, torch.Stream]] = []


class Tell(Function):
    """Notes on which thread and stream its backward pass is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        thread = threading.get_native_id()
        device = acc.current_device_index()
        SEEN.append((thread, device, acc.current_stream()))
        return gradient


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    SEEN.clear()


def wants(device: str, *values: float) -> Tensor:
    return torch.tensor(values or (1.0, 2.0), device=device, requires_grad=True)


def name_of(thread: int) -> str:
    return Path(f"/proc/self/task/{thread}/comm").read_text("ascii").strip()


def backward_everywhere() -> None:
    there = [wants(device) for device in ("cpu", "openreg:0", "openreg:1")]
    sum(Tell.apply(x).sum().to("openreg:0") for x in there).backward()


@pytest.mark.proves("autograd-threads")
def test_each_device_has_a_thread_and_the_cpu_the_callers():
    backward_everywhere()
    here = threading.get_native_id()
    found = {
        (name_of(thread) if thread != here else "here", device)
        for thread, device, _ in SEEN
    }
    assert found == {("here", 0), ("pt_autograd_0", 0), ("pt_autograd_1", 1)}


@pytest.mark.proves("autograd-one-thread")
def test_without_its_threads_a_device_is_current_all_the_same():
    with torch.autograd.set_multithreading_enabled(False):
        backward_everywhere()
    assert {thread for thread, _, _ in SEEN} == {threading.get_native_id()}
    assert sorted(device for _, device, _ in SEEN) == [0, 0, 1]
    assert acc.current_device_index() == 0


@pytest.mark.proves("autograd-stream")
@pytest.mark.parametrize("index", [0, 1])
def test_the_backward_pass_is_on_the_stream_of_the_forward_pass(index):
    stream = torch.Stream(device=f"openreg:{index}")
    x = wants(f"openreg:{index}")
    with stream:
        y = Tell.apply(x * 2).sum()
    acc.current_stream(index).wait_stream(stream)
    y.backward()
    assert [(device, s) for _, device, s in SEEN] == [(index, stream)]
    assert x.grad.tolist() == [2, 2]


class Cross(Function):
    """Goes to device 1, and in its backward pass comes back, or does not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, returns: bool) -> Tensor:
        ctx.home = x.device if returns else None
        return x.to("openreg:1") * 3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        assert acc.current_device_index() == 1
        return (gradient * 3).to(ctx.home), None


def test_a_function_may_cross_devices():
    x = wants("openreg:0")
    y = Cross.apply(x, True)
    assert y.device.index == 1
    y.sum().backward()
    assert x.grad.device.index == 0
    assert x.grad.tolist() == [3, 3]


def test_a_gradient_on_another_device_is_refused():
    y = Cross.apply(wants("openreg:0"), False)
    with pytest.raises(
        RuntimeError, match="device openreg:0 but got openreg:1"
    ):
        y.sum().backward()


def test_hooks_run_on_the_devices_thread():
    x, calls = wants("openreg"), []
    y = x * 2
    y.register_hook(lambda g: g * 10)
    x.register_post_accumulate_grad_hook(
        lambda leaf: calls.append((name_of(threading.get_native_id()), leaf))
    )
    y.sum().backward()
    ((thread, leaf),) = calls
    assert thread == "pt_autograd_0"
    assert leaf is x
    assert x.grad.tolist() == [20, 20]


@pytest.mark.parametrize("pinned", [False, True])
def test_what_is_saved_may_wait_on_the_host(pinned):
    x = wants("openreg", 2.0, 3.0)
    hooks = torch.autograd.graph.save_on_cpu(pinned, device_type="openreg")
    saved: list[Tensor] = []
    pack = hooks.pack_hook

    def keep(tensor: Tensor) -> Any:
        device, copy = pack(tensor)
        saved.append(copy)
        return device, copy

    hooks.pack_hook = keep
    with hooks:
        y = (x * x).sum()
    y.backward()
    assert [(s.device.type, s.is_pinned()) for s in saved] == [
        ("cpu", pinned)
    ] * 2
    assert x.grad.tolist() == [4, 6]


def test_an_exception_of_a_backward_pass_comes_to_the_caller():
    class Fails(Tell):
        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise KeyError("of a device's thread")

    with pytest.raises(KeyError, match="of a device's thread"):
        Fails.apply(wants("openreg")).sum().backward()


def test_anomaly_mode_names_the_function_that_made_a_nan():
    x = wants("openreg", 0.0)
    with (
        pytest.warns(UserWarning, match="Anomaly|forward call"),
        pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"),
        torch.autograd.detect_anomaly(),
    ):
        (x.sqrt() * 0).sum().backward()


def test_a_backward_pass_may_begin_in_another():
    class Nested(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, depth: int) -> Tensor:
            ctx.save_for_backward(x)
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
            (x,) = ctx.saved_tensors
            inner = x.detach().requires_grad_()
            if ctx.depth:
                with torch.enable_grad():
                    Nested.apply(inner, ctx.depth - 1).sum().backward()
                gradient = gradient + inner.grad
            return gradient, None

    x = wants("openreg")
    Nested.apply(x, 70).sum().backward()  # 60 deep, the engine changes threads
    assert x.grad.tolist() == [71, 71]


def test_gradients_of_gradients_cross_devices():
    x = wants("openreg:0")
    y = (x.to("openreg:1") ** 3).cpu().sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.device == second.device == x.device
    assert second.tolist() == [6, 12]


def cubes(x: Tensor) -> Tensor:
    return (x**3 * x.flip(0)).sum()


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "grad": grad(cubes),
    "grad of grad": lambda x: grad(lambda y: grad(cubes)(y).sum())(x),
    "hessian": hessian(cubes),
    "jacrev": jacrev(lambda x: x.outer(x)),
    "jacfwd": jacfwd(lambda x: x.outer(x).softmax(1)),
    "vmap": lambda x: vmap(grad(cubes))(x.outer(x)),
    "jvp": lambda x: torch.func.jvp(cubes, (x,), (x.sin(),))[1],
    "vjp": lambda x: torch.func.vjp(torch.sin, x)[1](x)[0],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_what_it_gives_on_the_cpu(name):
    x = torch.tensor([0.5, 1.0, -2.0])
    result = TRANSFORMS[name](x.to("openreg"))
    assert result.device.type == "openreg"
    torch.testing.assert_close(result.cpu(), TRANSFORMS[name](x))


def test_each_sample_has_a_gradient_of_its_own():
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1, device="openreg")
    parameters, x = dict(net.named_parameters()), torch.rand(4, 3).to("openreg")

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, parameters, (x,)).square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(4):
        net.zero_grad()
        net(x[i]).square().sum().backward()
        torch.testing.assert_close(each["weight"][i], net.weight.grad)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_a_map_draws_from_the_devices_generator(randomness):
    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        zeros = torch.zeros(2, 8, device="openreg")
        return vmap(lambda x: torch.rand_like(x), randomness=randomness)(zeros)

    first = draw(0)
    assert torch.equal(first, draw(0))
    assert torch.equal(first[0], first[1]) == (randomness == "same")


def test_forward_mode_keeps_a_tangent_on_the_device():
    x = torch.tensor([0.0, 1.0], device="openreg")
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        moved = forward_ad.unpack_dual(dual.sin().to("openreg:1"))
    assert moved.tangent.device.index == 1
    torch.testing.assert_close(moved.tangent.to(x.device), x.cos())
