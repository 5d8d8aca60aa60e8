"""An exercise of the chapter Operators: the kernel of `native_dropout`.

It is called below autograd, with a tensor of the device, and may call other
operators. This one drops elements, and forgets the rest of its contract.

    nox -s tests -- backend/tests/judge.py -k dropout
"""

import torch
from torch import Tensor


def native_dropout(
    x: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    mask = torch.rand_like(x) >= p
    return x * mask, mask


# expect: ok
