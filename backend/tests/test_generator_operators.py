"""Every operator that draws, on a device: from which generator it draws."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

openreg = torch.openreg
DEVICE = "openreg"

# Operators of other devices, by the beginning of their names; here they raise.
FOREIGN = (
    "_cudnn",
    "_efficient_attention",
    "_fill_mem_eff",
    "_flash_attention",
    "_fused_dropout",
    "_lstm_mps",
    "_nested_tensor",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_cudnn",
    "_scaled_dot_product_efficient",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_fused_attention_overrideable",  # not written yet
    "_triton",
    "miopen",
)
# Tagged, because what they choose or are composed of may draw.
DRAWS_NOTHING = (
    "_fused_sdp_choice",
    "_scaled_dot_product_flash_attention_for_cpu",
)


def tagged_operators() -> dict[str, torch._ops.OpOverload]:
    operators = {}
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        if torch.Tag.nondeterministic_seeded in operator.tags:
            operators[name] = operator
    return operators


OPERATORS = tagged_operators()


def floats(*size: int) -> torch.Tensor:
    return torch.full(size, 0.5, device=DEVICE)


def recurrent(name: str) -> dict[str, object]:
    """Arguments of lstm, gru, rnn_tanh and rnn_relu, padded and packed."""
    base, _, form = name.partition(".")
    cell = {"lstm": nn.LSTM, "gru": nn.GRU}.get(base, nn.RNN)
    weights = list(cell(3, 4, num_layers=2).to(DEVICE).parameters())
    state = floats(2, 5, 4)
    arguments: dict[str, object] = {
        "hx": [state, state] if base == "lstm" else state,
        "params": weights,
        "num_layers": 2,
        "bidirectional": False,
    }
    if form == "data":
        lengths = torch.tensor([5, 5, 5])
        return arguments | {"data": floats(15, 3), "batch_sizes": lengths}
    return arguments | {"input": floats(3, 5, 3)}


# Values of arguments, by name; what has a default and is not here keeps it.
VALUES = {
    "device": DEVICE,
    "dropout": 0.5,
    "dropout_p": 0.5,
    "from": 0,
    "generator": None,
    "has_biases": True,
    "high": 9,
    "low": 0,
    "n": 64,
    "num_samples": 2,
    "p": 0.5,
    "size": [64],
    "to": 9,
    "train": True,
    "training": True,
    "batch_first": False,
}


def special(name: str) -> dict[str, object]:
    if name.split(".")[0] in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return recurrent(name)
    if "attention" in name or "sdp" in name:
        qkv = {key: floats(1, 2, 4, 8) for key in ("query", "key", "value")}
        return qkv | {"dropout_p": 0.0 if name in DRAWS_NOTHING else 0.5}
    if name.startswith("randint_like.Tensor"):
        return {"high": torch.tensor(9)}  # which must be on the CPU
    if name.startswith("rrelu"):
        return {"self": -floats(4, 8)}  # only negative numbers are drawn for
    if name == "multinomial.out":
        return {"out": torch.empty(4, 2, dtype=torch.int64, device=DEVICE)}
    if name == "native_dropout.out":
        return {"out1": torch.empty(4, 8, dtype=torch.bool, device=DEVICE)}
    if name.startswith(("normal.float_float", "normal_functional")):
        return {"mean": 0.0, "std": 1.0}
    if name.startswith("normal.float_Tensor"):
        return {"mean": 0.0}
    if name.startswith("randperm") and name.endswith("out"):
        return {"out": torch.empty(64, dtype=torch.int64, device=DEVICE)}
    return {}


def arguments(name: str) -> tuple[list[object], dict[str, object]]:
    operator = OPERATORS[f"aten::{name}"]
    values = VALUES | special(name)
    positional, named = [], {}
    for argument in operator._schema.arguments:
        value = None
        is_tensor = str(argument.type) == "Tensor"
        if argument.name in values and not (
            is_tensor and isinstance(values[argument.name], float)
        ):
            value = values[argument.name]
        elif is_tensor:
            value = floats(4, 8)
        elif argument.has_default_value():
            value = argument.default_value
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


NAMES = sorted(name.removeprefix("aten::") for name in OPERATORS)
OURS = [n for n in NAMES if not n.startswith(FOREIGN) or n in DRAWS_NOTHING]


def test_there_are_such_operators():
    assert len(OURS) > 100
    assert {"native_dropout", "rand", "uniform_", "lstm.input"} <= set(OURS)


@pytest.mark.parametrize("name", OURS)
def test_drawing_moves_the_devices_generator_alone(name):
    positional, named = arguments(name)
    cpu, device = torch.get_rng_state(), openreg.get_rng_state()
    OPERATORS[f"aten::{name}"](*positional, **named)
    assert torch.equal(torch.get_rng_state(), cpu)
    moved = not torch.equal(openreg.get_rng_state(), device)
    assert moved == (name not in DRAWS_NOTHING)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(OURS)))
def test_operators_of_other_devices_are_refused_and_draw_nothing(name):
    positional, named = arguments(name)
    cpu = torch.get_rng_state()
    with pytest.raises((RuntimeError, TypeError)):
        OPERATORS[f"aten::{name}"](*positional, **named)
    assert torch.equal(torch.get_rng_state(), cpu)


WITH_GENERATOR = [
    name
    for name in OURS
    if any(
        argument.name == "generator"
        for argument in OPERATORS[f"aten::{name}"]._schema.arguments
    )
]


def draw(name: str, generator: torch.Generator) -> list[torch.Tensor]:
    """What the operator draws from `generator`, on that one's device."""

    def move(value: object) -> object:
        if isinstance(value, torch.Tensor) and value.device.type == DEVICE:
            return value.to(generator.device)
        return generator.device if value == DEVICE else value

    operator = OPERATORS[f"aten::{name}"]
    positional, named = tree_map(move, arguments(name))
    names = [argument.name for argument in operator._schema.arguments]
    if "generator" in named:
        named["generator"] = generator
    else:
        positional[names.index("generator")] = generator
    results = operator(*positional, **named)
    results = results if isinstance(results, tuple) else (results,)
    assert all(result.device == generator.device for result in results)
    return [result.cpu() for result in results]


def test_there_are_operators_with_a_generator():
    assert len(WITH_GENERATOR) > 75
    assert {"rand.generator", "multinomial.out", "rrelu"} <= set(WITH_GENERATOR)


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_that_is_named_is_the_one_that_is_drawn_from(name):
    generators = openreg.default_generators
    defaults = [torch.default_generator, *generators]
    states = [each.get_state() for each in defaults]
    mine = torch.Generator("openreg:1").manual_seed(4)
    state = mine.get_state()
    got = draw(name, mine)
    assert not torch.equal(mine.get_state(), state)
    assert all(map(torch.equal, [g.get_state() for g in defaults], states))
    theirs = torch.Generator().manual_seed(4)
    for one, other in zip(got, draw(name, theirs), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(mine.get_state(), theirs.get_state())


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_of_another_place_is_refused(name):
    positional, named = arguments(name)
    schema = OPERATORS[f"aten::{name}"]._schema
    names = [argument.name for argument in schema.arguments]
    found = {
        "cpu": r"Expected a 'openreg' device type .* found 'cpu'",
        "openreg:1": r"Expected a 'openreg:0' generator .* 'openreg:1'",
    }
    for device, message in found.items():
        wrong = torch.Generator(device)
        if "generator" in named:
            named["generator"] = wrong
        else:
            positional[names.index("generator")] = wrong
        state = wrong.get_state()
        with pytest.raises(RuntimeError, match=message):
            OPERATORS[f"aten::{name}"](*positional, **named)
        assert torch.equal(wrong.get_state(), state)
