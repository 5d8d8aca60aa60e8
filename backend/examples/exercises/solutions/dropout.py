import torch
from torch import Tensor


# [py-dropout-solution] With p = 1 nothing is kept, so nothing may be scaled.
def native_dropout(
    x: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.rand_like(x) >= p
    scale = 1 / (1 - p) if p < 1 else 0.0
    return x * mask * scale, mask


# [/py-dropout-solution]

# expect: ok
