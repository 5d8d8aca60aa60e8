"""Models of the device as ONNX files, run by onnxruntime on the CPU."""

from __future__ import annotations

import io

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.onnx.errors import UnsupportedOperatorError

EXPORTERS = {"`dynamo=True`": True, "`dynamo=False`": False}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor) -> Tensor:
        size, device = x.shape[1], x.device
        mask = nn.Transformer.generate_square_subsequent_mask(size, device)
        return self.layers(x, mask=mask, is_causal=True)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, 4),
    )


MODELS = {
    "a CNN": (cnn, (2, 3, 8, 8)),
    "an LSTM": (Recurrent, (2, 5, 8)),
    "a transformer": (Causal, (2, 5, 8)),
}
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export(name: str, device: str, dynamo: bool) -> tuple[nn.Module, bytes]:
    """A model whose parameters are frozen, for batches of any size."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().to(device).eval().requires_grad_(False)
    file = io.BytesIO()
    sizes = (
        {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
        if dynamo
        else {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    )
    x = torch.randn(shape, device=device)
    torch.onnx.export(model, (x,), file, dynamo=dynamo, verbose=False, **sizes)
    return model, file.getvalue()


def difference(model: nn.Module, file: bytes, shape: tuple[int, ...]) -> float:
    session = onnxruntime.InferenceSession(file)
    (asked,) = session.get_inputs()
    x = torch.randn(3, *shape[1:], device="openreg")
    (found,) = session.run(None, {asked.name: x.cpu().numpy()})
    return (torch.from_numpy(found) - model(x).cpu()).abs().max().item()


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_elsewhere(name, exporter, keep):
    dynamo = EXPORTERS[exporter]
    cells = {"model": name, "exporter": exporter}
    if name == "a transformer" and not dynamo:
        with pytest.raises(UnsupportedOperatorError) as refused:
            export(name, "openreg", dynamo)
        with pytest.raises(UnsupportedOperatorError) as on_cpu:
            export(name, "cpu", dynamo)
        assert str(refused.value) == str(on_cpu.value)
        message = str(refused.value).partition(". ")[0]
        why = f"refused, as on the CPU: ``{message}``"
        keep("onnx", *PACKAGES, **cells, result=why)
        return
    model, file = export(name, "openreg", dynamo)
    error = difference(model, file, MODELS[name][1])
    assert error < 1e-5
    equal = f"equal to {error:.0e}"
    keep("onnx", *PACKAGES, **cells, result=equal)
