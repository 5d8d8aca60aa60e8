"""With the minimal set, the copying fallback gives what the CPU gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import _fresh

pytestmark = pytest.mark.one_mode

PROGRAM = """
import json, torch

def t(d, *shape):
    n = torch.Size(shape).numel()
    return torch.arange(1.0, 1 + n).reshape(shape).to(d)

def foreach_self(d):
    x = t(d, 3)
    torch._foreach_add_([x, x], [x, x])
    return x

def self_operands(d):
    x = t(d, 3)
    return x.add_(x).mul_(x)

def gradient(d):
    x = t(d, 3).requires_grad_()
    (x.exp() * x).sum().backward()
    return x.grad

def batch_norm(d):
    norm = torch.nn.BatchNorm1d(2).to(d)
    norm(t(d, 4, 2))
    return torch.cat([norm.running_mean, norm.running_var])

def attention(d):
    q = t(d, 1, 1, 4, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, q, q, dropout_p=0.5)

def checkpointed(d):
    x = t(d, 8).requires_grad_()
    dropout = torch.nn.functional.dropout
    y = torch.utils.checkpoint.checkpoint(dropout, x, use_reentrant=False)
    (y * x).sum().backward()
    return x.grad

def by_vmap(d):
    dropout = torch.nn.functional.dropout
    return torch.vmap(dropout, randomness="different")(t(d, 2, 8))

def device_generator_only(d):
    torch.rand(2, device="openreg").normal_()
    return torch.rand(2).to(d)

WORK = {
    "normal_": lambda d: t(d, 4).normal_(),
    "bernoulli": lambda d: torch.bernoulli(torch.full((8,), 0.5, device=d)),
    "randperm": lambda d: torch.randperm(6, device=d),
    "multinomial": lambda d: torch.multinomial(t(d, 5), 3),
    "dropout": lambda d: torch.nn.functional.dropout(t(d, 8)),
    "batch_norm": batch_norm,
    "attention": attention,
    "checkpointed": checkpointed,
    "by_vmap": by_vmap,
    "softmax_out": lambda d: torch.softmax(
        t(d, 2, 3), 1, out=torch.empty(2, 3, device=d)
    ),
    "device_generator_only": device_generator_only,
    "transposed": lambda d: t(d, 2, 3).t().exp(),
    "sliced": lambda d: t(d, 4, 6)[:, ::2].exp(),
    "expanded": lambda d: t(d, 1, 3).expand(2, 3).exp(),
    "out": lambda d: torch.exp(
        t(d, 2, 3).t(), out=torch.empty(0, device=d)
    ),
    "out_channels_last": lambda d: torch.exp(
        t(d, 1, 2, 2, 2).to(memory_format=torch.channels_last),
        out=torch.empty(0, device=d),
    ),
    "index_by_the_host": lambda d: t(d, 4)[torch.tensor([1, 2])],
    "foreach_self": foreach_self,
    "self_operands": self_operands,
    "conjugate_in_place": lambda d: torch.tensor([1 + 2j]).to(d).conj().exp_(),
    "gradient": gradient,
    "sort": lambda d: torch.cat([x.float() for x in t(d, 2, 3).t().sort(1)]),
}

side = torch.openreg.Stream()
wrong = {}
for name, work in WORK.items():
    found = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(1)
        state = torch.get_rng_state()
        with torch.openreg.stream(side):
            x = work(device)
            found.append((x.stride(), x.detach().cpu().tolist()))
    unmoved = torch.get_rng_state().equal(state)
    if not unmoved and name != "device_generator_only":
        wrong[name] = "the CPU's generator has moved"
    if str(found[0]) != str(found[1]):
        wrong[name] = str(found)
counts = torch.openreg.fallback.counts()
try:
    t("openreg", 4)[torch.tensor([1], device="openreg:1")]
    refusal = "none"
except RuntimeError as error:
    refusal = str(error)
print(json.dumps([wrong, sum(counts.values()), refusal]))
"""


@pytest.mark.proves("checklist.comparison", "fallback-batch-norm")
@pytest.mark.parametrize("mode", ["auto", "async"])
def test_values_strides_and_random_numbers_are_the_cpus(mode: str) -> None:
    printed = _fresh.prints(
        PROGRAM, OPENREG_OPERATORS="minimal", OPENREG_LAUNCH=mode
    )
    wrong, calls, refusal = json.loads(printed)
    assert wrong == {}
    assert calls > 20
    assert "on the same device as the indexed tensor" in refusal


HOST_READERS = """
import sys
sys.path.insert(0, sys.argv[1])
import test_operators as tests

for name in tests.HOST_BOUND:
    tests.test_kernels_that_read_as_the_host_run_on_the_device(name)
tests.test_a_range_that_grows_in_place_is_written_on_the_device()
tests.test_operators_of_a_library_for_the_host_are_refused()
"""


def test_kernels_that_read_as_the_host_end_no_process() -> None:
    """What the full set is asked by test_operators.py."""
    folder = str(Path(__file__).parent)
    _fresh.prints(HOST_READERS, folder, OPENREG_OPERATORS="minimal")
