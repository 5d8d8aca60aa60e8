"""Ways to quantize a model: what the CPU gives, bit by bit, on the device."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization
from torch.ao.quantization import quantize_fx

import _examples
from torch_openreg.openreg import fallback

# PyTorch has deprecated its quantization and quantized tensors (torch 2.13).
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:torch.ao.quantization:DeprecationWarning"
    ),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_:UserWarning"),
    pytest.mark.filterwarnings("ignore:Please use quant_min:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]

ENGINE = "fbgemm"


def make(device: str) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3)),
    )
    return net.to(device)


def inputs(device: str) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(8, 2, 6, 6).to(device)


def learn(net: nn.Module, device: str) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        net(inputs(device)).square().mean().backward()
        optimizer.step()


def dynamic(device: str) -> nn.Module:
    return quantization.quantize_dynamic(make(device), {nn.Linear})


def wrapped(device: str, config: Any) -> nn.Module:
    net = quantization.QuantWrapper(make(device))
    net.qconfig = config
    return net


def static(device: str) -> nn.Module:
    config = quantization.get_default_qconfig(ENGINE)
    net = quantization.prepare(wrapped(device, config).eval())
    net(inputs(device))
    return quantization.convert(net)


def aware(device: str) -> nn.Module:
    config = quantization.get_default_qat_qconfig(ENGINE)
    net = quantization.prepare_qat(wrapped(device, config).train())
    learn(net, device)
    return quantization.convert(net.eval())


def graph(device: str) -> nn.Module:
    mapping = quantization.get_default_qconfig_mapping(ENGINE)
    x = inputs(device)
    net = quantize_fx.prepare_fx(make(device).eval(), mapping, (x,))
    net(x)
    return quantize_fx.convert_fx(net)


def graph_aware(device: str) -> nn.Module:
    mapping = quantization.get_default_qat_qconfig_mapping(ENGINE)
    net: Any = make(device).train()
    net = quantize_fx.prepare_qat_fx(net, mapping, (inputs(device),))
    learn(net, device)
    return quantize_fx.convert_fx(net.eval())


WAYS: dict[str, Callable[[str], nn.Module]] = {
    "dynamic": dynamic,
    "static": static,
    "aware": aware,
    "graph": graph,
    "graph_aware": graph_aware,
}


@pytest.mark.proves("quantization-equal")
@pytest.mark.parametrize("name", WAYS)
def test_a_quantized_model_gives_what_it_gives_on_the_cpu(name):
    result = WAYS[name]("openreg")(inputs("openreg"))
    assert result.device.type == "openreg"
    assert torch.equal(result.cpu(), WAYS[name]("cpu")(inputs("cpu")))


def test_a_quantized_lstm_gives_what_it_gives_on_the_cpu():
    results = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(0)
        net = nn.LSTM(4, 6).to(device)
        net = quantization.quantize_dynamic(net, {nn.LSTM})
        results.append(net(torch.ones(3, 2, 4, device=device))[0].cpu())
    assert torch.equal(*results)


def test_a_quantized_model_moves_to_the_cpu():
    net, x = static("openreg"), inputs("openreg")
    there = net(x)
    assert torch.equal(net.cpu()(x.cpu()), there.cpu())


def codes(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


@pytest.mark.proves("quantization-int-mm")
@pytest.mark.parametrize("shape", [(17, 8, 8), (32, 64, 24), (1, 3, 5)])
def test_a_product_of_int8_is_exact(shape):
    torch.manual_seed(0)
    rows, inner, columns = shape
    a, b = codes(rows, inner), codes(inner, columns)
    with fallback.forbid():
        product = torch._int_mm(a.to("openreg"), b.to("openreg"))
        flipped = torch._int_mm(
            a.to("openreg"), b.T.contiguous().to("openreg").T
        )
    assert product.dtype == torch.int32
    assert torch.equal(product.cpu(), a.int() @ b.int())
    assert torch.equal(flipped, product)


def test_an_int8_product_in_int8_wraps_as_on_the_cpu():
    torch.manual_seed(0)
    a, b = codes(5, 40), codes(40, 7)
    product = a.to("openreg") @ b.to("openreg")
    assert torch.equal(product.cpu(), a @ b)
    assert torch.equal(product.cpu(), (a.int() @ b.int()).to(torch.int8))


def test_a_product_of_float8_has_the_scales():
    torch.manual_seed(0)
    a, b = (torch.randn(16, 16).to(torch.float8_e4m3fn) for _ in range(2))
    whole = nn.functional.ScalingType.TensorWise
    product = nn.functional.scaled_mm(
        *(a.to("openreg"), b.to("openreg").T),
        *(torch.tensor([2.0], device="openreg"), whole),
        *(torch.tensor([0.25], device="openreg"), whole),
        output_dtype=torch.float32,
    )
    torch.testing.assert_close(product.cpu(), a.float() @ b.float().T / 2)


def test_the_examples_quantizer_is_exact_in_its_integers():
    example = _examples.load("quantizer")
    torch.manual_seed(0)
    linear = nn.Linear(32, 8).to("openreg")
    layer = example.Int8Linear(linear)
    x = torch.randn(2, 3, 32, device="openreg")
    x_codes, x_scales = example.quantize_rows(x.flatten(0, 1))
    expected = (x_codes * x_scales) @ (layer.codes * layer.scales.T).T
    expected = (expected + linear.bias).view(2, 3, 8)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x), linear(x), rtol=0.05, atol=0.05)
    zero = torch.zeros(1, 32, device="openreg")
    torch.testing.assert_close(layer(zero)[0], linear.bias)


def test_the_examples_program_asserts_how_far_it_is_off(capsys):
    runpy.run_path(
        str(_examples.EXAMPLES / "quantizer.py"), run_name="__main__"
    )
    assert "3.9 times smaller" in capsys.readouterr().out
