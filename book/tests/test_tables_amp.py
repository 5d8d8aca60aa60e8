"""The cast lists of the AMP chapter are those that the backend registers."""

import pytest
import torch

from rows import rows
from tables import amp


@pytest.mark.parametrize("device", ["PrivateUse1", "CUDA"])
def test_what_is_listed_is_cast_and_nothing_else(device: str) -> None:
    """Here, and on a device of PyTorch's own."""
    key = f"Autocast{device}"
    found = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    lists = [amp.policy_operators(row.macro) for row in rows("amp.policies")]
    assert all(lists)
    assert {
        name
        for name in found
        if name.startswith("aten::") and "cudnn" not in name
    } == {f"aten::{name}" for names in lists for name in names} | {
        "aten::binary_cross_entropy"
    }
