"""The recipe of book/howto/port.md makes a backend that builds and trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "book" / "howto" / "port.md"

TRAIN = """
import sys
import torch, torch_nova
layer = torch.nn.Linear(2, 1, device="nova")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
x = torch.rand(64, 2, device="nova")
for step in range(200):
    optimizer.zero_grad()
    loss = (layer(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.device, loss.item() < 1e-3, torch.accelerator.current_accelerator())
print([name for name in sys.modules if "openreg" in name])
"""


def recipe() -> str:
    """The commands of the page's first console fence, without what they say."""
    fence = re.search(r"```console\n(.*?)```", PAGE.read_text(), re.S)
    return "\n".join(re.findall(r"^\$ (.*)$", fence[1], re.M))


@pytest.mark.stress
def test_the_renamed_backend_builds_and_trains(tmp_path: Path) -> None:
    environment = os.environ | {
        "REPO": str(ROOT),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(*command: str | Path) -> str:
        return subprocess.check_output(
            command, cwd=tmp_path, env=environment, text=True
        )

    run("bash", "-euo", "pipefail", "-c", recipe())
    copy, build, site = (tmp_path / name for name in ("nova", "build", "site"))
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run("cmake", "-S", copy / "backend", "-B", build, "-G", "Ninja", python)
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", site)
    run("cp", "-r", copy / "backend" / "torch_nova", site)
    environment["PYTHONPATH"] = str(site)
    said = run(sys.executable, "-c", TRAIN)
    assert said.splitlines() == ["nova:0 True nova", "[]"]
