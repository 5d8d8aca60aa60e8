"""What a young backend wants of tests that it did not write.

A plugin of pytest: `python -m pytest -p chosen_tests generic_tests.py`.
"""

import unittest

import torch
from torch.testing._internal.common_device_type import (
    PrivateUse1TestBase,
    tol,
    toleranceOverride,
)
from torch.testing._internal.opinfo.core import DecorateInfo

# [py-chosen-tests] The tests to run, chosen before any is instantiated.
PrivateUse1TestBase.set_test_configs(
    # Which operators there are to test; without this, all.
    op_allowlist={"sin", "exp", "linalg.svd"},
    # What is different for one of them: skipped, or held to less.
    op_overrides={
        "linalg.svd": [
            DecorateInfo(
                unittest.skip("no solver yet"),
                cls_name="TestHost",
                dtypes=[torch.float32],
            )
        ],
        "exp": [
            DecorateInfo(
                toleranceOverride({torch.float32: tol(atol=1e-4, rtol=1e-4)})
            )
        ],
    },
    # Tests, by class and name, or "*" for all of a class.
    test_exclusions={"TestSquare": ["test_on_cuda"]},
)
# [/py-chosen-tests]

# expect: ok
