"""PyTorch's databases, each entry on the device and on the CPU.

Give it to pytest, with PYTORCH_TESTING_DEVICE_ONLY_FOR=openreg in the
environment. It needs nothing of this backend but the device's name.
"""

# ruff: noqa: PT009 (these tests are unittest's)

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import (
    TestCase,
    run_tests,
    set_rng_seed,
)
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves

SINGLE = (torch.float32,)
# What is in new memory is not for comparing, and a copy of a tensor has only
# what the tensor shows of its storage.
FILLED = [
    op for op in op_db if "empty" not in op.name and "as_strided" not in op.name
]


def twice(device: str, results: Callable[[str], Any]) -> Iterator[Any]:
    """What comes of the same work here and there, from equal seeds."""
    for where in (device, "cpu"):
        set_rng_seed(0)
        yield results(where)


def copy_to(where: str, sample: SampleInput) -> SampleInput:
    """A sample of its own for one call, here or on the CPU.

    Some entries give the same tensor to several samples, which are changed.
    What is on the CPU already has to be there.
    """

    def copy(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return part
        return part.cpu() if where == "cpu" else part.clone()

    copied = sample.transform(copy)
    if "device" in copied.kwargs:
        copied.kwargs["device"] = where
    return copied


class TestDatabases(TestCase):
    # [py-database-operators] All samples of an operator, in float32.
    @ops(FILLED, allowed_dtypes=SINGLE)
    def test_operator(self, device, dtype, op):
        def results(where):
            samples = [
                copy_to(where, sample)
                for sample in op.sample_inputs(device, dtype)
            ]
            set_rng_seed(1)  # for those that draw
            return [op(s.input, *s.args, **s.kwargs) for s in samples]

        self.assertEqual(*twice(device, results))

    # [/py-database-operators]

    # [py-database-modules] A module's results and its parameters' gradients.
    @modules(module_db, allowed_dtypes=SINGLE)
    def test_module(self, device, dtype, module_info, training):
        def learn(entry, where):
            set_rng_seed(1)  # parameters are drawn on the CPU
            made = entry.constructor_input
            module = module_info.module_cls(*made.args, **made.kwargs)
            module.to(where, dtype).train(training)
            set_rng_seed(2)
            given = entry.forward_input
            found = module(*given.args, **given.kwargs)
            loss = sum(
                leaf.float().square().sum()
                for leaf in tree_leaves(found)
                if isinstance(leaf, torch.Tensor)
            )
            if loss.requires_grad:
                loss.backward()
            return found, [weight.grad for weight in module.parameters()]

        def results(where):
            entries = module_info.module_inputs_func(
                module_info, where, dtype, False, training
            )
            return [learn(e, where) for e in entries if e.forward_input]

        self.assertEqual(*twice(device, results))

    # [/py-database-modules]

    # [py-database-optimizers] Three steps with each setting of an optimizer.
    @optims(optim_db)
    def test_optimizer(self, device, dtype, optim_info):
        def learn(where, settings):
            weight = torch.arange(6, dtype=dtype).reshape(3, 2)
            weight = weight.to(where).requires_grad_()
            rows = torch.tensor([0, 2], device=where)
            sparse = optim_info.only_supports_sparse_grads
            optimizer = optim_info.optim_cls([weight], **settings)

            def closure():
                optimizer.zero_grad()
                part = torch.nn.functional.embedding(
                    rows, weight, sparse=sparse
                )
                loss = part.square().sum()
                loss.backward()
                return loss

            return [optimizer.step(closure) for _ in range(3)], weight

        def results(where):
            entries = optim_info.optim_inputs_func(device=where)
            return [learn(where, entry.kwargs) for entry in entries]

        self.assertEqual(*twice(device, results))

    # [/py-database-optimizers]


instantiate_device_type_tests(TestDatabases, globals())

if __name__ == "__main__":
    run_tests()

# expect: ok
