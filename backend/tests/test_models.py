"""Ordinary models train on the device to the CPU's losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS = 20


# Two histories are compared bit by bit.
pytestmark = pytest.mark.usefixtures("one_thread")


class Recurrent(nn.Module):
    def __init__(self, cell: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.cell = cell(16, 32, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 6 * 6, 10),
    )


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(32 * 10, 10))


def losses(
    make: Callable[[], nn.Module], shape: tuple[int, ...], device: str
) -> Tensor:
    """The losses of `STEPS` training steps from a fixed seed."""
    torch.manual_seed(0)
    net = make().to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    numbers = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=numbers).to(device)
    y = torch.randint(0, 10, shape[:1], generator=numbers).to(device)
    torch.manual_seed(7)  # dropout draws from here on
    history = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return torch.tensor(history, dtype=torch.float64)


MODELS = {
    "mlp": (mlp, (32, 64)),
    "cnn": (cnn, (8, 3, 16, 16)),
    "lstm": (lambda: Recurrent(nn.LSTM), (8, 12, 16)),
    "gru": (lambda: Recurrent(nn.GRU), (8, 12, 16)),
    "transformer": (transformer, (8, 10, 32)),
}


@pytest.mark.proves("inside-models")
@pytest.mark.parametrize("name", MODELS)
def test_training_follows_the_cpu(name) -> None:
    make, shape = MODELS[name]
    on_host = losses(make, shape, "cpu")
    with torch.openreg.fallback.forbid():
        on_device = losses(make, shape, "openreg")
    assert on_host[-1] < on_host[0], "the model learns something"
    torch.testing.assert_close(on_device, on_host, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_training_matches_bit_for_bit(name) -> None:
    make, shape = MODELS[name]
    assert losses(make, shape, "openreg").equal(losses(make, shape, "cpu"))


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_gradients_are_right(cell, bias) -> None:
    torch.manual_seed(3)
    net = cell(3, 4, bias=bias, bidirectional=True).double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    gradients = []
    for device in ("cpu", "openreg"):
        net = net.to(device)
        net.zero_grad()
        moved = x.to(device, copy=True).requires_grad_()
        net(moved)[0].sin().sum().backward()
        # Copies, because moving the module moves its gradients, too.
        gradients.append(
            [t.grad.to("cpu", copy=True) for t in (moved, *net.parameters())]
        )
    torch.testing.assert_close(*gradients)


LAYERS: dict[str, dict[str, Any]] = {
    "one": {},
    "two, both ways": {"num_layers": 2, "bidirectional": True},
    "batch first, no bias": {"batch_first": True, "bias": False},
    "dropout": {"num_layers": 2, "dropout": 0.5},
}


@pytest.mark.parametrize("name", LAYERS)
def test_lstm_layers_are_the_cpus_bits(name) -> None:
    outcomes = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(0)
        net = nn.LSTM(3, 4, **LAYERS[name]).to(device)
        x = torch.randn(5, 2, 3).to(device).requires_grad_()
        torch.manual_seed(1)  # dropout draws from here on
        out, (h, c) = net(x)
        (out.sum() + (h * c).sum()).backward()
        tensors = [out, h, c, x.grad, *(p.grad for p in net.parameters())]
        outcomes.append(tensors)
    for host, device in zip(*outcomes, strict=True):
        assert device.cpu().equal(host)
        assert device.stride() == host.stride()


LSTM_OTHERWISE = {
    "a cell": lambda x: nn.LSTMCell(3, 4).to(x)(x[0])[0],
    "a projection": lambda x: nn.LSTM(3, 4, proj_size=2).to(x)(x)[0],
    "float64": lambda x: nn.LSTM(3, 4).to(x.device).double()(x.double())[0],
    "no batch": lambda x: nn.LSTM(3, 4).to(x)(x[:, :0])[0],
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", LSTM_OTHERWISE)
def test_other_lstms_are_made_of_cells(name) -> None:
    results = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(0)
        net = LSTM_OTHERWISE[name]
        x = torch.linspace(-1, 1, 30).view(5, 2, 3)
        results.append(net(x.to(device)).cpu())
    torch.testing.assert_close(*results)


CELLS = {
    "_thnn_fused_lstm_cell": [(2, 8), (2, 8), (2, 2)],
    "_thnn_fused_lstm_cell_backward_impl": [(2, 2)] * 4 + [(2, 8)],
    "_thnn_fused_gru_cell": [(2, 6), (2, 6), (2, 2)],
    "_thnn_fused_gru_cell_backward": [(2, 2), (2, 10)],
}


@pytest.mark.proves("messages.gates-of-one-size-side-by")
@pytest.mark.parametrize("name", CELLS)
def test_cells_look_at_shapes_and_devices_first(name) -> None:
    cell = getattr(torch.ops.aten, name)
    arguments = [torch.ones(shape, device="openreg") for shape in CELLS[name]]
    flags = [True] if "backward" in name else []
    cell(*arguments, *flags)
    odd = [x.new_ones(2, 7) if x.shape[1] > 2 else x for x in arguments]
    with pytest.raises(RuntimeError, match="gates of one size, side by side"):
        cell(*odd, *flags)
    with pytest.raises(RuntimeError, match="found at least two devices"):
        cell(arguments[0].to("openreg:1"), *arguments[1:], *flags)


def test_an_lstm_obeys_autocast_and_compiles() -> None:
    net = nn.LSTM(3, 4).to("openreg")
    x = torch.rand(5, 2, 3, device="openreg", requires_grad=True)
    with torch.autocast("openreg", dtype=torch.bfloat16):
        assert net(x)[0].dtype is torch.bfloat16
    compiled = torch.compile(net, backend="aot_eager")(x)[0]
    assert compiled.equal(net(x)[0])
    (gradient,) = torch.autograd.grad(compiled.sum(), x)
    assert gradient.equal(torch.autograd.grad(net(x)[0].sum(), x)[0])


def test_an_lstm_refuses_states_of_the_host() -> None:
    net = nn.LSTM(3, 4).to("openreg")
    x = torch.rand(5, 2, 3, device="openreg")
    with pytest.raises(RuntimeError, match="at the same device"):
        net(x, (torch.rand(1, 2, 4), torch.rand(1, 2, 4)))
    assert net(x)[0].shape == (5, 2, 4)


@pytest.mark.proves("checklist.overrideable")
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_passes_gradcheck(transposed) -> None:
    convolve = F.conv_transpose2d if transposed else F.conv2d
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, device="openreg")
    w = torch.randn(2, 2, 3, 3, dtype=torch.float64, device="openreg")
    b = torch.randn(2, dtype=torch.float64, device="openreg")
    inputs = [t.requires_grad_() for t in (x, w, b)]
    assert torch.autograd.gradcheck(convolve, inputs)
    assert torch.autograd.gradgradcheck(convolve, inputs, atol=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_draws_the_cpus_numbers(p) -> None:
    results = []
    for device in ("cpu", "openreg"):
        x = torch.linspace(1, 2, 100).to(device).requires_grad_()
        torch.manual_seed(11)
        y = F.dropout(x, p)
        y.square().sum().backward()
        results.append((y.detach().cpu(), x.grad.cpu()))
    assert results[0][0].equal(results[1][0])
    assert results[0][1].equal(results[1][1])


def test_dropout_at_evaluation_changes_nothing() -> None:
    x = torch.rand(10, device="openreg")
    out, mask = torch.native_dropout(x, 0.5, False)
    assert out.cpu().equal(x.cpu())
    assert mask.cpu().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_dropout_backward_promotes_as_on_the_cpu(dtype, scale) -> None:
    grad = torch.arange(4).to(dtype)
    mask = torch.tensor([True, False, True, True])
    expected = torch.ops.aten.native_dropout_backward(grad, mask, scale)
    got = torch.ops.aten.native_dropout_backward(
        grad.to("openreg"), mask.to("openreg"), scale
    )
    torch.testing.assert_close(got.cpu(), expected)


def test_packed_sequences_take_lengths_from_the_host() -> None:
    x = torch.rand(3, 5, 4)
    packed = nn.utils.rnn.pack_padded_sequence(
        x.to("openreg"), torch.tensor([5, 3, 1]), batch_first=True
    )
    back, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == [5, 3, 1]
    assert back.cpu()[0].equal(x[0])
    assert back.cpu()[2, 1:].eq(0).all()
