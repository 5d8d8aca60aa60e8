"""The rows of the chapter on tensors that are not plain."""

import pytest
import torch

from rows import Row, rows
from tables import operators_special as special

KINDS = rows("operators_special.kinds")
KEYS = {
    "sparse, COO": "SparsePrivateUse1",
    "sparse, compressed": "SparseCsrPrivateUse1",
    "quantized": "QuantizedPrivateUse1",
    "nested, strided": "NestedTensorPrivateUse1",
    "nested, jagged": "Python",
    "conjugate": "PrivateUse1",
    "channels last": "PrivateUse1",
    "without elements": "PrivateUse1",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_every_kind_has_its_key(kind: Row) -> None:
    assert special.key_of(special.make(kind)) == KEYS[kind.name]


def test_each_key_has_the_kernels_of_its_twin() -> None:
    found = torch._C._dispatch_get_registrations_for_dispatch_key
    for key in sorted(set(KEYS.values()) - {"Python"}):
        twin = key.replace("PrivateUse1", "CPU")
        theirs = {o for o in found(twin) if o.startswith("aten::")}
        assert theirs <= set(found(key)), key
    assert special.kernels("QuantizedPrivateUse1") > 200
