"""The smallest backend: what it does is what the CPU does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import _fresh
from _session import counting

pytestmark = pytest.mark.one_mode

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "backend" / "examples" / "smallest"
ALONE = {
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # a process has one such device
    "PYTHONPATH": str(FOLDER),
}

PROGRAM = """
import copy, io, json, warnings
import torch, smallest

def t(device, *shape):
    n = torch.Size(shape).numel()
    return torch.arange(1.0, 1 + n).reshape(shape).to(device)

def reload(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)

def gradient(device):
    x = t(device, 2, 3).requires_grad_()
    (x.exp() @ x.t()).sum().backward()
    return x.grad

def train(device):
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1).to(device)
    x = t(device, 4, 3) / 12
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()
    return layer.weight.detach()

def write(device, change):
    x = t(device, 4, 4)
    change(x)
    return x

def random(device):
    torch.manual_seed(7)
    return torch.rand(5, device=device)

def compiled(device, backend):
    x = t(device, 2, 3).requires_grad_()
    forward = torch.compile(
        lambda x: (x.exp() @ x.t()).sum(), backend=backend, fullgraph=True)
    forward(x).backward()
    return x.grad

def exported(device):
    x = t(device, 2, 3)
    return torch.export.export(torch.nn.Softmax(0), (x,)).module()(x + 1)

WORK = {
    "compiled, eager": lambda d: compiled(d, "eager"),
    "compiled, aot_eager": lambda d: compiled(d, "aot_eager"),
    "exported": exported,
    "view": lambda d: write(d, lambda x: x.view(2, 8)[0].zero_()),
    "slice": lambda d: write(d, lambda x: x[1:, ::2].fill_(3)),
    "transpose": lambda d: write(d, lambda x: x.t().copy_(t("cpu", 4, 4))),
    "expand": lambda d: t(d, 1, 3).expand(2, 3).clone(),
    "copy within": lambda d: write(d, lambda x: x[:2].copy_(x[2:] + 1)),
    "convert": lambda d: t(d, 2, 3).t().to(torch.int16),
    "conjugate": lambda d: torch.tensor([1 + 2j]).to(d).conj().clone(),
    "negative": lambda d: torch.tensor([1 + 2j]).to(d).conj().imag.clone(),
    "complex parts": lambda d: torch.view_as_real(torch.ones(2).cfloat().to(d)),
    "out": lambda d: torch.exp(t(d, 2, 3).t(), out=torch.empty(0, device=d)),
    "resize": lambda d: t(d, 2, 2).resize_(1, 3),
    "grow": lambda d: t(d, 2, 2).resize_(3, 2)[:2],
    "channels last": lambda d: torch.empty(0, device=d).resize_(
        1, 2, 3, 4, memory_format=torch.channels_last).zero_(),
    "resize a storage": lambda d: write(
        d, lambda x: x.untyped_storage().resize_(200)),
    "set": lambda d: torch.empty(0, device=d).set_(
        t(d, 9).untyped_storage(), 2, (2, 2), (3, 1)),
    "deepcopy": lambda d: copy.deepcopy(t(d, 2, 3).t()),
    "save and load": lambda d: reload(t(d, 2, 3).t()),
    "gradient": gradient,
    "train": train,
    "random": random,
    "nothing": lambda d: torch.empty(0, 3, device=d) + 1,
    "item": lambda d: torch.tensor(t(d, 2, 3)[1, 2].item()),
    "copy on write": lambda d: write(d, lambda x: torch._lazy_clone(x).zero_()),
}
wrong = {}
for name, work in WORK.items():
    ours, theirs = work("tiny"), work("cpu")
    same = ours.stride() == theirs.stride() and ours.cpu().equal(theirs)
    if not same:
        wrong[name] = [str(ours), str(theirs)]

def says(call):
    try:
        return str(call())
    except Exception as error:
        return str(error).split(". ")[0]

x = t("tiny", 2)
print(json.dumps({
    "wrong": wrong,
    "accelerator": str(torch._C._get_accelerator(check=True)),
    "ready": torch.accelerator.is_available() and torch.tiny.is_initialized(),
    "device 1": str(torch.ones(1, device="tiny:1").device),
    "in device 1": [
        str(torch.ones(1, device="tiny").device)
        for _ in [0] if not torch.tiny.set_device(1)
    ][0],
    "back": torch.tiny.set_device(0) or torch.tiny.current_device(),
    "between": (x.to("tiny:1").cpu() == t("cpu", 2)).all().item(),
    "two devices": says(lambda: x + x.to("tiny:1")),
    "no such device": says(lambda: torch.ones(1, device="tiny:2")),
    "too small": says(
        lambda: torch.empty(0, device="tiny").set_(
            x.untyped_storage(), 1, (2,), (1,))),
    "method": str(torch.ones(1).tiny("tiny:1").device),
    "openreg": hasattr(torch, "openreg"),
    "same parameter": (layer := torch.nn.Linear(1, 1)).weight
    is layer.tiny().weight,
    "mixed": (x.view(1, 2) @ torch.ones(2, 1)).item(),
}))
"""


@pytest.mark.proves("compile-any")
def test_the_smallest_backend_computes_what_the_cpu_does() -> None:
    printed = _fresh.prints(PROGRAM, **ALONE, **counting())
    assert json.loads(printed.splitlines()[-1]) == {
        "wrong": {},
        "accelerator": "tiny",
        "ready": True,
        "device 1": "tiny:1",
        "in device 1": "tiny:1",
        "back": 0,
        "between": True,
        "two devices": "Expected all tensors to be on the same device, but "
        "found at least two devices, tiny:0 and tiny:1!",
        "no such device": "There is no tiny:2",
        "too small": "The storage is too small.",
        "method": "tiny:1",
        "openreg": False,
        # What the page says that it leaves out.
        "same parameter": False,
        "mixed": 3.0,
    }


def test_what_a_reader_copies_from_the_page_are_the_files() -> None:
    page = (ROOT / "book" / "howto" / "smallest.md").read_text()
    shown = re.findall(r'^:start-after: "\[([\w-]+)\]"$', page, re.M)
    for file, left in {
        "smallest.cpp": ["}  // namespace"],
        "smallest.py": ["from __future__ import annotations"],
    }.items():
        text = (FOLDER / file).read_text()
        region = re.compile(
            r"^(?://|#) \[([\w-]+)\] .+\n[^\0]*?\[/\1\]\n", re.M
        )
        names = region.findall(text)
        assert names == [name for name in shown if name in names]
        rest = re.sub(r'\A""".*?"""', "", region.sub("", text), flags=re.S)
        lines = [
            x for x in rest.splitlines() if x and x[:2] not in ("//", "# ")
        ]
        assert lines == left
