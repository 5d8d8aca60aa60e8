"""The release build as a user gets it: `import torch` and nothing else."""

import sys
from pathlib import Path

import torch

x = torch.arange(6.0, device="openreg").reshape(2, 3)
y = (x @ x.T + 2).relu()
assert y.device == torch.device("openreg:0"), y.device
assert y.cpu().tolist() == [[7.0, 16.0], [16.0, 52.0]], y

package = Path(sys.modules["torch_openreg"].__file__ or "")
assert package.is_relative_to(sys.prefix), package
maps = Path("/proc/self/maps").read_text().split()
loaded = {word for word in maps if word.endswith(("openreg.so", "bindings.so"))}
assert len(loaded) == 3, loaded
assert all(Path(word).is_relative_to(sys.prefix) for word in loaded), loaded

print(f"The release build works: {package.parent.name} on {y.device}.")
