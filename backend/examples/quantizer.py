"""A quantizer of one's own: linear layers that multiply integers.

Weights become int8 codes once, one scale a row; activations at each call.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LARGEST = 127


# [py-quantizer] Quantizes each row of a matrix by a scale of its own.
def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    scales = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / LARGEST
    return (x / scales).round().to(torch.int8), scales


class Int8Linear(nn.Module):
    """A linear layer whose product is computed in integers."""

    codes: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        codes, scales = quantize_rows(linear.weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales.T)
        self.register_buffer("bias", linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        codes, scales = quantize_rows(x.flatten(0, -2))
        sums = torch._int_mm(codes, self.codes.T)  # exact, in int32
        y = sums * scales * self.scales
        y = y if self.bias is None else y + self.bias
        return y.unflatten(0, x.shape[:-1])


def quantize(model: nn.Module) -> None:
    """Replaces all linear layers of a model, where they are."""
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, Int8Linear(child))
        else:
            quantize(child)


# [/py-quantizer]


def size(model: nn.Module) -> int:
    return sum(t.nbytes for t in model.state_dict().values())


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    model.to("openreg")
    x = torch.randn(64, 256, device="openreg")
    exact, before = model(x), size(model)
    quantize(model)
    error = (model(x) - exact).abs().max() / exact.abs().max()
    print(f"{before / size(model):.1f} times smaller, {error:.1%} off")
    assert error < 0.02, "int8 should be nearer"


if __name__ == "__main__":
    main()

# expect: ok
