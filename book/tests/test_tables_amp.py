"""The cast lists of the AMP chapter are those that the backend registers."""

import pytest
import torch

from rows import rows
from tables import amp

LISTED = {
    row.name: [f"aten::{n}" for n in amp.policy_operators(row.macro)]
    for row in rows("amp.policies")
}


@pytest.mark.parametrize("policy", LISTED)
def test_every_listed_operator_is_cast(policy: str) -> None:
    assert LISTED[policy]
    lacking = [
        name
        for name in LISTED[policy]
        if not torch._C._dispatch_has_kernel_for_dispatch_key(
            name, "AutocastPrivateUse1"
        )
    ]
    assert not lacking


def test_no_other_operator_is_cast() -> None:
    mine = torch._C._dispatch_get_registrations_for_dispatch_key(
        "AutocastPrivateUse1"
    )
    aten = {name for name in mine if name.startswith("aten::")}
    listed = {name for names in LISTED.values() for name in names}
    assert aten - listed == {"aten::binary_cross_entropy"}


def test_a_device_of_pytorch_itself_is_cast_alike() -> None:
    theirs = torch._C._dispatch_get_registrations_for_dispatch_key(
        "AutocastCUDA"
    )
    aten = {
        name
        for name in theirs
        if name.startswith("aten::") and "cudnn" not in name
    }
    listed = {name for names in LISTED.values() for name in names}
    assert aten == listed | {"aten::binary_cross_entropy"}
