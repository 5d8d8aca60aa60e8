"""One model, run in every way that PyTorch has: which shape is in a picture?

`python one_model.py WAY...` goes the ways that are named, or all. Each stands
in a function of at most ten lines; all else is the same for them.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEVICE = torch.device(os.environ.get("DEVICE", "openreg"))
SIDE, SHAPES = 16, ("bar", "ring", "cross", "disc")


# [py-one-model-data] Pictures are drawn by arithmetic, on the host.
def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """So many noisy pictures, and which shape is in each."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % len(SHAPES)
    size, *middle = 3.0 + 2 * torch.rand(3, count, 1, 1, generator=generator)
    line = torch.arange(SIDE)
    y = (line[:, None] - 2 * middle[0]).expand(-1, SIDE, SIDE)
    x = (line - 2 * middle[1]).expand(-1, SIDE, SIDE)
    far, bar = y.hypot(x), y.abs() < 1
    ring, cross, disc = (far - size).abs() < 1, bar | (x.abs() < 1), far < size
    drawn = torch.stack((bar, ring, cross, disc), 1)[range(count), labels]
    noise = torch.randn(drawn.shape, generator=generator)
    images = (drawn & (far < 7)) + 0.3 * noise
    return images[:, None].to(DEVICE), labels.to(DEVICE)


# [/py-one-model-data]


# [py-one-model] The model, in which nothing names a device.
class Shapes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.named = nn.Linear(16 * (SIDE // 4) ** 2, len(SHAPES))

    def forward(self, images: Tensor) -> Tensor:
        return self.named(self.seen(images).flatten(1))


def make() -> Shapes:
    torch.manual_seed(0)
    return Shapes().to(DEVICE)


# [/py-one-model]

# [py-one-model-train] The loop that all ways share.
LossOf = Callable[[Tensor, Tensor], Tensor]


def batches(epochs: int, size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    images, labels = pictures(256, seed=1)
    for _ in range(epochs):
        yield from zip(images.split(size), labels.split(size), strict=True)


def train(model: nn.Module, loss_of: LossOf, scaled: bool = False) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(DEVICE.type, 1024.0, enabled=scaled)
    for images, labels in batches(epochs=6):
        optimizer.zero_grad()
        scaler.scale(loss_of(images, labels)).backward()
        scaler.step(optimizer)
        scaler.update()


# [/py-one-model-train]


# [py-one-model-eager] Each operator runs as soon as Python calls it.
def eager() -> nn.Module:
    model = make()
    train(model, lambda images, labels: F.cross_entropy(model(images), labels))
    return model


# [/py-one-model-eager]


# [py-one-model-amp] The forward pass in float16, and a scaled loss.
def amp() -> nn.Module:
    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.float16):
            return F.cross_entropy(model(images), labels)

    model = make()
    train(model, loss_of, scaled=True)
    return model


# [/py-one-model-amp]


# [py-one-model-compiled] Both passes as kernels that Inductor writes.
def compiled() -> nn.Module:
    model = make()
    fast = torch.compile(model)
    train(model, lambda images, labels: F.cross_entropy(fast(images), labels))
    return model


# [/py-one-model-compiled]


# [py-one-model-exported] The file holds the model, so loading needs no class.
def exported() -> nn.Module:
    some = {"images": {0: torch.export.Dim("some", min=2)}}
    example = pictures(4, seed=3)[:1]
    program = torch.export.export(eager(), example, dynamic_shapes=some)
    with tempfile.TemporaryDirectory() as folder:
        torch.export.save(program, Path(folder) / "shapes.pt2")
        return torch.export.load(Path(folder) / "shapes.pt2").module()


# [/py-one-model-exported]


# [py-one-model-quantized] Calibrated with some pictures, then in integers.
def quantized() -> nn.Module:
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    some = pictures(64, seed=3)[:1]
    mapping = get_default_qconfig_mapping("fbgemm")
    model = quantize_fx.prepare_fx(eager().eval(), mapping, some)
    model(*some)
    return quantize_fx.convert_fx(model)


# [/py-one-model-quantized]

WAYS = {
    way.__name__: way for way in (eager, amp, compiled, exported, quantized)
}


# [py-one-model-judge] The accuracy on pictures that training has not seen.
def judge(model: nn.Module) -> float:
    images, labels = pictures(128, seed=2)
    with torch.no_grad():
        right = model(images).argmax(1) == labels
    return right.float().mean().item()


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")  # PyTorch's of its own quantization
    for name in names or WAYS:
        right = judge(WAYS[name]())
        print(f"{name:9} {right:4.0%} right")
        assert right > 0.95, f"{name}: the model has not learnt the shapes"


# [/py-one-model-judge]

if __name__ == "__main__":
    main(sys.argv[1:])

# expect: ok
