"""PyTorch's databases of modules and optimizers: what is asked of an entry."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from torch_device_kit.conformance import database
from torch_device_kit.conformance.database import Call, differentiable
from torch_device_kit.conformance.known import Question

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

ENTRIES: dict[str, dict[str, Any]] = {
    "module": {info.name: info for info in module_db},
    "optimizer": {info.name: info for info in optim_db},
}
KINDS = {
    "module": "runs",  # as evaluated
    "module-training": "trains",  # with derivatives by inputs and parameters
    "optimizer": "trains",  # three steps, in the form that it chooses
    "optimizer-foreach": "trains",
    "optimizer-fused": "complete",
}
DTYPES = {"float32": "runs"}


def questions() -> Iterator[Question]:
    for kind in KINDS:
        of, _, form = kind.partition("-")
        for name, info in ENTRIES[of].items():
            if of == "module" or form in ("", *info.supported_impls):
                yield Question(name, "float32", kind)


def check(
    name: str, dtype: str, kind: str, count: int
) -> tuple[int, list[str]]:
    """How many settings of an entry were compared, and what differed."""
    of, _, form = kind.partition("-")
    calls = uses if of == "module" else optimizations
    return database.compared(islice(calls(name, form), count))


def uses(name: str, form: str) -> Iterator[Call]:
    """A call of each module of an entry."""
    info, training = ENTRIES["module"][name], form == "training"
    torch.manual_seed(0)
    for entry in info.module_inputs_func(
        info, "cpu", torch.float32, training, training
    ):
        made, given = entry.constructor_input, entry.forward_input
        if given:
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            arguments = (list(given.args), dict(given.kwargs))
            yield partial(use, module), (torch.device("cpu"), *arguments)


def use(module: torch.nn.Module, sample: Any) -> Any:
    """What it returns, what it keeps and, in training, the derivatives."""
    where, args, kwargs = sample
    module = deepcopy(module).to(where)
    with torch.set_grad_enabled(module.training):
        found = module(*args, **kwargs)
    outputs = differentiable(found)
    inputs = differentiable((args, kwargs, list(module.parameters())))
    gradients = database.derivatives(outputs, inputs) if outputs else []
    return found, module.state_dict(), gradients


def optimizations(name: str, form: str) -> Iterator[Call]:
    """Three steps with each setting of an optimizer."""
    info = ENTRIES["optimizer"][name]
    weights = [
        torch.arange(6.0).add(n).div(7).reshape(3, 2).requires_grad_()
        for n in range(3)
    ]
    for entry in info.optim_inputs_func(device="cpu"):
        settings = entry.kwargs | ({form: True} if form else {})
        call = partial(optimize, info, settings)
        yield call, (weights, torch.tensor([0, 2]))


def optimize(info: Any, settings: dict[str, Any], sample: Any) -> Any:
    """Losses and states of three steps, which change the weights."""
    weights, rows = sample
    optimizer = info.optim_cls(weights, **settings)
    find = partial(
        torch.nn.functional.embedding,
        rows,
        sparse=info.only_supports_sparse_grads,
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.cat([find(weight) for weight in weights]).square().sum()
        loss.backward()
        return loss

    def settle(value: Any) -> Any:
        """Each form keeps its numbers where it likes."""
        number = isinstance(value, Tensor) and not value.dim()
        return value.to(rows.device) if number else value

    losses = [optimizer.step(closure) for _ in range(3)]
    states = [optimizer.state[weight] for weight in weights]
    return losses, tree_map(settle, tree_leaves(states))
