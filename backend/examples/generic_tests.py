"""Tests as PyTorch writes its own: they name no device.

Run it, or give it to pytest. Without a choice of devices, each test runs on
the CPU and on the backend's device.
"""

# ruff: noqa: PT009 (these tests are unittest's)

import torch
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyCUDA,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests


# [py-generic-square] The device comes as an argument, and so does the dtype.
class TestSquare(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_values(self, device, dtype):
        x = torch.arange(4, device=device, dtype=dtype)
        self.assertEqual(x.square(), [0, 1, 4, 9], exact_dtype=False)

    @deviceCountAtLeast(2)
    def test_moves(self, devices):
        x = torch.arange(4, device=devices[0]).to(devices[1])
        self.assertEqual(str(x.square().device), devices[1])

    @onlyCUDA
    def test_on_cuda(self, device):
        self.assertTrue(torch.ones(1, device=device).is_cuda)


instantiate_device_type_tests(TestSquare, globals())
# [/py-generic-square]


# [py-generic-operators] One test for each operator and dtype.
class TestHost(TestCase):
    @ops(op_db, allowed_dtypes=(torch.float32,))
    def test_agrees(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            result = op(sample.input, *sample.args, **sample.kwargs)
            host = sample.transform(
                lambda x: x.cpu() if isinstance(x, torch.Tensor) else x
            )
            expected = op(host.input, *host.args, **host.kwargs)
            self.assertEqual(result, expected)


instantiate_device_type_tests(TestHost, globals())
# [/py-generic-operators]

if __name__ == "__main__":
    run_tests()

# expect: ok
