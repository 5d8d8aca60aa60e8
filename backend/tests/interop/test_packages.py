"""Packages that know nothing of this device, with tiny models at random.

Each test ends with what it took: nothing, a line of the user's, or the words
of a refusal, which a new version may take back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import accelerate
import lightning
import numpy
import pytest
import safetensors.torch
import timm
import torch
import torchmetrics
import torchvision
import transformers
from accelerate.state import AcceleratorState, PartialState
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms import v2

NOTHING = "nothing"


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What accelerate keeps for a process is forgotten."""
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(Exception, match=r".") as refused:
        call()
    message = " ".join(str(refused.value).split())
    return f"refused: ``{message.partition('. ')[0]}``"


def here() -> Tensor:
    return torch.arange(3.0, device="openreg")


# Tensors between programs


def test_dlpack_copies_to_the_host(keep):
    x = here()
    copied = numpy.from_dlpack(x, device="cpu", copy=True)
    assert copied.tolist() == x.tolist()
    line = "`numpy.from_dlpack(x, device='cpu', copy=True)`"
    keep("packages", "numpy", what="DLPack, to the host", takes=line)


def test_dlpack_has_no_number_for_the_device(keep):
    takes = refusal(lambda: torch.from_dlpack(here()))
    assert "Unknown device type openreg for Dlpack" in takes
    keep("packages", "torch", what="DLPack, on the device", takes=takes)


def test_safetensors_keep_tensors_of_the_device(keep, tmp_path: Path):
    file = tmp_path / "x.safetensors"
    safetensors.torch.save_file({"x": here()}, file)
    loaded = safetensors.torch.load_file(file)["x"].to("openreg")
    assert torch.equal(loaded, here())
    net = nn.Linear(3, 2, device="openreg")
    other = nn.Linear(3, 2, device="openreg")
    safetensors.torch.save_model(net, file)
    safetensors.torch.load_model(other, file)
    assert torch.equal(other.weight, net.weight)
    what = "`save_file`, `save_model`, `load_model`"
    keep("packages", "safetensors", what=what, takes=NOTHING)
    safetensors.torch.save_file({"x": here()}, file)
    takes = refusal(lambda: safetensors.torch.load_file(file, device="openreg"))
    takes += "; load to the CPU and call `to`"
    what = "`load_file(device='openreg')`"
    keep("packages", "safetensors", what=what, takes=takes)


# transformers and accelerate


def gpt() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=32,
        n_positions=32,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_a_language_model_writes_what_it_writes_on_the_cpu(keep, tmp_path):
    cpu = gpt()
    cpu.save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    net = load(tmp_path, device_map="openreg").eval()
    assert net.device.type == "openreg"
    words = torch.randint(1, 32, (2, 4))
    options = {"max_new_tokens": 6, "do_sample": False}
    written = net.generate(words.to("openreg"), **options)
    assert torch.equal(written.cpu(), cpu.generate(words, **options))
    what = "`from_pretrained(device_map='openreg')`, `generate`"
    keep("packages", "transformers", what=what, takes=NOTHING)


def trained(path: Path, **options: Any) -> torch.device:
    data = [
        {"input_ids": word, "labels": word}
        for word in torch.randint(1, 32, (8, 4))
    ]
    arguments = transformers.TrainingArguments(
        str(path),
        max_steps=2,
        report_to=[],
        save_strategy="no",
        **options,
    )
    trainer = transformers.Trainer(gpt().train(), arguments, train_dataset=data)
    trainer.train()
    return trainer.model.device


LINE = "`ACCELERATE_TORCH_DEVICE=openreg`"


def test_a_trainer_finds_the_device_by_a_variable(keep, tmp_path, monkeypatch):
    assert trained(tmp_path).type == "cpu"
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "openreg")
    assert trained(tmp_path).type == "openreg"
    keep("packages", "transformers", what="`Trainer`", takes=LINE)
    AcceleratorState._reset_state(reset_partial_state=True)
    takes = refusal(lambda: trained(tmp_path, bf16=True))
    keep("packages", "transformers", what="`Trainer`, `bf16=True`", takes=takes)


def prepared(**options: Any) -> tuple[torch.device, torch.dtype]:
    """Where a step was taken, and what its product was computed in."""
    accelerator = accelerate.Accelerator(**options)
    seen: list[torch.dtype] = []
    inner = nn.Linear(2, 1)
    inner.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    net: nn.Module = nn.Sequential(inner)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net, optimizer = accelerator.prepare(net, optimizer)
    accelerator.backward(net(torch.ones(4, 2, device=accelerator.device)).sum())
    optimizer.step()
    return accelerator.device, seen[0]


def test_accelerate_finds_the_device_by_a_variable(keep, monkeypatch):
    assert prepared()[0].type == "cpu"
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "openreg")
    device, dtype = prepared(mixed_precision="bf16")
    assert (device.type, dtype) == ("openreg", torch.bfloat16)
    keep(
        "packages", "accelerate", what="`Accelerator`, also in bf16", takes=LINE
    )
    AcceleratorState._reset_state(reset_partial_state=True)
    takes = refusal(lambda: prepared(mixed_precision="fp16"))
    assert "fp16 mixed precision requires a device in" in takes
    keep("packages", "accelerate", what="`Accelerator` in fp16", takes=takes)


# Lightning


class OwnAccelerator(Accelerator):
    """What Lightning asks of a device that it does not know."""

    def setup_device(self, device: torch.device) -> None:
        torch.accelerator.set_device_index(device)

    def teardown(self) -> None:
        torch.accelerator.empty_cache()

    @staticmethod
    def parse_devices(devices: int) -> list[int]:
        return list(range(int(devices)))

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device("openreg", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.accelerator.device_count()

    @staticmethod
    def is_available() -> bool:
        return torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        return "openreg"

    def get_device_stats(self, device: torch.device) -> dict[str, Any]:
        return torch.accelerator.memory_stats(device)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        result = self.linear(batch[0])
        self.seen = result.device.type, result.dtype
        return result.float().sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def fitted(path: Path, **options: Any) -> tuple[str, torch.dtype]:
    module, data = Module(), TensorDataset(torch.randn(8, 2))
    trainer = lightning.Trainer(
        max_steps=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=path,
        **options,
    )
    trainer.fit(module, DataLoader(data, 4))
    return module.seen


def on_device() -> dict[str, Any]:
    place = SingleDeviceStrategy(torch.device("openreg", 0))
    return {"accelerator": OwnAccelerator(), "strategy": place}


def test_lightning_needs_a_class_for_the_device(keep, tmp_path):
    assert fitted(tmp_path) == ("cpu", torch.float32)
    assert fitted(tmp_path, **on_device()) == ("openreg", torch.float32)
    takes = "an `Accelerator` class of eight methods, and "
    takes += "`SingleDeviceStrategy(torch.device('openreg', 0))`"
    keep("packages", "lightning", what="`Trainer`", takes=takes)
    silent = fitted(tmp_path, precision="bf16-mixed", **on_device())
    assert silent == ("openreg", torch.float32)
    scaler = torch.amp.GradScaler("openreg")
    for name, dtype, scale in (
        ("bf16-mixed", torch.bfloat16, None),
        ("16-mixed", torch.float16, scaler),
    ):
        plugin = MixedPrecision(name, device="openreg", scaler=scale)
        assert fitted(tmp_path, plugins=[plugin], **on_device()) == (
            "openreg",
            dtype,
        )
    what = "`Trainer` in mixed precision"
    takes = "`plugins=[MixedPrecision(..., device='openreg')]`; "
    takes += "`precision=` alone trains in float32 without a word"
    keep("packages", "lightning", what=what, takes=takes)


# Pictures and metrics


def same_as_cpu(net: nn.Module) -> None:
    x = torch.randn(2, 3, 64, 64)
    expected = net.eval()(x)
    net.to("openreg")
    torch.testing.assert_close(net(x.to("openreg")).cpu(), expected)
    net.train()(x.to("openreg")).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_models_of_torchvision_give_what_they_give_on_the_cpu(keep):
    for name in ("resnet18", "mobilenet_v3_small", "efficientnet_b0"):
        same_as_cpu(getattr(torchvision.models, name)(num_classes=4))
    what = "ResNet, MobileNet, EfficientNet; both passes"
    keep("packages", "torchvision", what=what, takes=NOTHING)


def test_transforms_run_on_the_device(keep):
    transform = v2.Compose(
        [
            v2.RandomHorizontalFlip(1.0),
            v2.Resize(24),
            v2.GaussianBlur(3, 1.0),
            v2.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    x = torch.rand(3, 32, 32)
    changed = transform(x.to("openreg"))
    torch.testing.assert_close(changed.cpu(), transform(x))
    keep("packages", "torchvision", what="`transforms.v2`", takes=NOTHING)


def test_models_of_timm_give_what_they_give_on_the_cpu(keep):
    same_as_cpu(timm.create_model("resnet10t", num_classes=3))
    same_as_cpu(timm.create_model("convnext_atto", num_classes=3))
    vit = {"img_size": 64, "depth": 2, "num_classes": 3}
    same_as_cpu(timm.create_model("vit_tiny_patch16_224", **vit))
    what = "ResNet, ConvNeXt, ViT; both passes"
    keep("packages", "timm", what=what, takes=NOTHING)


def test_metrics_give_what_they_give_on_the_cpu(keep):
    scores, labels = torch.randn(50, 4), torch.randint(4, (50,))
    many = torchmetrics.classification
    names = ("Accuracy", "AUROC", "ConfusionMatrix", "F1Score")
    results = []
    for device in ("cpu", "openreg"):
        metrics = torchmetrics.MetricCollection(
            [getattr(many, f"Multiclass{name}")(4) for name in names]
        ).to(device)
        metrics.update(scores.to(device), labels.to(device))
        results.append({k: v.cpu() for k, v in metrics.compute().items()})
    torch.testing.assert_close(*results)
    what = "accuracy, AUROC, F1, a confusion matrix"
    keep("packages", "torchmetrics", what=what, takes=NOTHING)
