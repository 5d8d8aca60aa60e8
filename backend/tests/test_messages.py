"""Refusals that no other test meets, in their own words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.one_mode


def quantized() -> torch.Tensor:
    return torch.ops.aten.quantize_per_tensor(
        torch.ones(2, device="openreg"), 1.0, 0, torch.qint8
    )


REFUSALS: dict[str, Callable[[], torch.Tensor]] = {
    "openreg: an empty tensor of layout Jagged "
    "is not supported; expected torch.strided": lambda: torch.empty(
        2, device="openreg", layout=torch.jagged
    ),
    "Only dense CPU tensors can be pinned": lambda: torch.empty(
        2, device="openreg", pin_memory=True
    ),
    "Copying from quantized Tensor to non-quantized Tensor": lambda: torch.ones(
        2, device="openreg"
    ).copy_(quantized()),
    "openreg: a quantized tensor cannot be viewed as Byte": lambda: (
        quantized().view(torch.uint8)
    ),
}


@pytest.mark.proves(
    "messages.is-not-supported-expected-torch-strided",
    "messages.only-dense-cpu-tensors-can-be",
    "messages.copying-from-quantized-tensor-to-non",
    "messages.a-quantized-tensor-cannot-be-viewed",
)
@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("says", REFUSALS)
def test_a_refusal_that_no_other_test_meets(says: str) -> None:
    with pytest.raises(RuntimeError) as error:
        REFUSALS[says]()
    assert str(error.value).startswith(says)
