"""Programs of torch.export and of TorchScript: saved, loaded and moved."""

import io
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.export.passes import move_to_device_pass

pytestmark = pytest.mark.one_mode

# TorchScript is deprecated as a whole (torch 2.13).
deprecated = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


class Net(nn.Module):
    """Parameters, buffers that change, a constant, and a tensor it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.constant = torch.tensor([1.0, 2.0, 3.0, 4.0], device="openreg")

    def forward(self, x: Tensor) -> Tensor:
        means = self.norm(self.conv(x)).mean((2, 3))
        return means * self.constant + torch.arange(4, device=x.device)


def make(device: str = "openreg") -> tuple[Net, Tensor]:
    torch.manual_seed(0)
    return Net().to(device), torch.randn(4, 1, 5, 5, device=device)


def reload(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.proves("export-same")
@pytest.mark.parametrize(("training", "strict"), [(False, False), (True, True)])
def test_what_was_saved_gives_the_same_for_any_batch(training, strict):
    net, x = make()
    net.train(training)
    sizes = {"x": {0: Dim("batch", min=2)}}
    program = export(net, (x,), dynamic_shapes=sizes, strict=strict)
    loaded = reload(program).module()
    for batch in x, x[:2], torch.cat([x, x]):
        assert torch.equal(loaded(batch), net(batch))
    for name, value in loaded.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name


def test_what_was_loaded_has_the_same_gradients():
    net, x = make()
    loaded = reload(export(net, (x,))).module()
    for module in net, loaded:
        module(x).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert torch.equal(loaded.get_parameter(name).grad, parameter.grad)


def places(program: ExportedProgram) -> set[str]:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    named = [n.kwargs.get("device") for n in program.graph.nodes]
    return {str(x.device) for x in tensors} | {str(d) for d in named if d}


@pytest.mark.proves("export-moves")
@pytest.mark.parametrize("other", ["cpu", "openreg:1"])
def test_a_program_moves_with_all_that_it_holds(other):
    net, x = make()
    net.eval()
    program = export(net, (x,))
    assert places(program) == {"openreg:0"}
    moved = reload(move_to_device_pass(program, other))
    assert places(moved) == {other}
    result = moved.module()(x.to(other))
    assert result.device == torch.device(other)
    torch.testing.assert_close(result.to(x.device), net(x))


@pytest.mark.parametrize("last", [False, True])
def test_a_channels_last_program_has_the_strides_of_the_model(last):
    layout = torch.channels_last if last else torch.contiguous_format
    net = nn.Conv2d(3, 4, 3, device="openreg").to(memory_format=layout)
    x = torch.randn(2, 3, 6, 6, device="openreg").to(memory_format=layout)
    program = export(net, (x,))
    (result,) = program.graph.output_node().args[0]
    assert result.meta["val"].stride() == net(x).stride()
    assert torch.equal(program.module()(x), net(x))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm")
@pytest.mark.parametrize("device", ["openreg", "cpu"])
def test_an_lstm_is_decomposed_for_any_batch(device):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]

    net = Recurrent().to(device).requires_grad_(False)
    x = torch.randn(2, 2, 3, device=device)  # each step is a part of the graph
    sizes = {"x": {0: Dim("batch")}}
    core = export(net, (x,), dynamic_shapes=sizes).run_decompositions()
    targets = {node.target for node in core.graph.nodes}
    assert torch.ops.aten.lstm.input not in targets
    x = torch.randn(3, 2, 3, device=device)
    torch.testing.assert_close(core.module()(x), net(x))


def test_both_branches_are_exported():
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.neg, (x,))

    x = torch.ones(3, device="openreg")
    loaded = reload(export(Branch(), (x,))).module()
    assert torch.equal(loaded(x), x.sin())
    assert torch.equal(loaded(-x), x)


def script(way: str, net: nn.Module, x: Tensor) -> io.BytesIO:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = (
            torch.jit.trace(net, x) if way == "trace" else torch.jit.script(net)
        )
        torch.jit.save(made, file)
    file.seek(0)
    return file


@deprecated
@pytest.mark.proves("export-script")
@pytest.mark.parametrize("other", ["openreg", "openreg:1", "cpu"])
def test_a_script_follows_its_argument_to_a_device(other):
    net, x = make()
    net.eval()
    del net.constant
    net.register_buffer("constant", torch.arange(4.0, device="openreg"))
    loaded = torch.jit.load(script("script", net, x), map_location=other)
    result = loaded(x.to(other))
    assert result.device.type == torch.device(other).type
    torch.testing.assert_close(result.to(x.device), net(x))


@deprecated
def test_a_trace_keeps_the_device_that_it_saw():
    class Place(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.arange(4, device=x.device)

    x = torch.zeros(4, device="openreg")
    loaded = torch.jit.load(script("trace", Place(), x), map_location="cpu")
    assert loaded(x).device == x.device
    with pytest.raises(RuntimeError, match="at least two devices, openreg:0"):
        loaded(x.cpu())
