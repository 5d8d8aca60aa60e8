"""torchao on the device: `quantize_`, and quantization of exported programs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torchao.quantization as ao
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import (
    HistogramObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_pt2e,
    prepare_qat_pt2e,
)
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
)
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

CONFIGS = (
    "Int8WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8DynamicActivationIntxWeightConfig",
    "IntxWeightOnlyConfig",
    "Float8WeightOnlyConfig",
    "Float8DynamicActivationFloat8WeightConfig",
    "Int4WeightOnlyConfig",
)
torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
X = torch.randn(32, 128)


def both(quantize: Callable[[nn.Module, Tensor], nn.Module]) -> str:
    """Whether both devices give the same, or refuse with the same words."""
    found: list[Tensor | str] = []
    for device in ("cpu", "openreg"):
        net, x = copy.deepcopy(NET).to(device), X.to(device)
        try:
            found.append(quantize(net, x)(x).cpu())
        except (AssertionError, ImportError) as error:
            found.append(str(error))
    cpu, ours = found
    if isinstance(cpu, str) or isinstance(ours, str):
        assert cpu == ours
        return f"refused, as on the CPU: ``{cpu}``"
    assert torch.equal(cpu, ours)
    off = (ours - NET(X)).abs().max() / NET(X).abs().max()
    assert off < 0.1
    return f"the CPU's bits, {off:.1%} off float32"


@pytest.mark.parametrize("config", CONFIGS)
def test_quantize_gives_what_it_gives_on_the_cpu(config, keep):
    def quantize(net: nn.Module, x: Tensor) -> nn.Module:
        ao.quantize_(net, getattr(ao, config)())
        return net

    what = f"`quantize_` with `{config}`"
    keep("torchao", "torchao", what=what, result=both(quantize))


class OwnQuantizer(Quantizer):
    """Says what the device multiplies in int8: linear layers, by channel."""

    activation = QuantizationSpec(
        dtype=torch.int8,
        observer_or_fake_quant_ctr=HistogramObserver.with_args(eps=2**-12),
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_symmetric,
    )
    weight = QuantizationSpec(
        dtype=torch.int8,
        observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(
            eps=2**-12
        ),
        quant_min=-127,
        quant_max=127,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )

    def annotate(self, model: GraphModule) -> GraphModule:
        for node in model.graph.nodes:
            if node.target is torch.ops.aten.linear.default:
                x, w = node.args[:2]
                assert isinstance(x, Node)
                assert isinstance(w, Node)
                node.meta["quantization_annotation"] = QuantizationAnnotation(
                    input_qspec_map={x: self.activation, w: self.weight},
                    _annotated=True,
                )
        return model

    def validate(self, model: GraphModule) -> None:
        """Every linear layer can be multiplied."""


def x86_quantizer(is_qat: bool) -> Quantizer:
    config = x86.get_default_x86_inductor_quantization_config(is_qat=is_qat)
    return x86.X86InductorQuantizer().set_global(config)


PT2E = {
    "pt2e, with `X86InductorQuantizer`": (
        prepare_pt2e,
        lambda: x86_quantizer(False),
    ),
    "pt2e in training, with `X86InductorQuantizer`": (
        prepare_qat_pt2e,
        lambda: x86_quantizer(True),
    ),
    "pt2e, with a quantizer of one's own": (prepare_pt2e, OwnQuantizer),
}


@pytest.mark.parametrize("what", PT2E)
def test_an_exported_program_is_quantized(what, keep):
    prepare, make = PT2E[what]

    def quantize(net: nn.Module, x: Tensor) -> nn.Module:
        prepared = prepare(torch.export.export(net, (x,)).module(), make())
        prepared(x)
        converted = convert_pt2e(prepared)
        steps = [str(node.target) for node in converted.graph.nodes]
        assert any("dequantize" in step for step in steps)
        return converted

    keep("torchao", "torchao", what=what, result=both(quantize))
