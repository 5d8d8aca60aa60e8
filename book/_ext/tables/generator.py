"""The tables of book/chapters/generator.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table
from tables.virtuals import methods


class GeneratorMethod(NamedTuple):
    name: str  # in c10/core/GeneratorImpl.h
    asked_by: str
    ours: str
    region: str
    test: str  # file::function in backend/tests; asks it through PyTorch


GENERATOR_METHODS = [
    GeneratorMethod(
        "set_current_seed",
        "`Generator.manual_seed()`, and so `torch.manual_seed()`",
        "Starts the inner generator anew.",
        "generator-delegate",
        "test_generator.py::test_a_seed_out_of_range_is_refused",
    ),
    GeneratorMethod(
        "current_seed",
        "`Generator.initial_seed()`",
        "The seed that it last got, not where it stands.",
        "generator-delegate",
        "test_generator.py::"
        "test_a_new_generator_starts_with_pytorchs_default_seed",
    ),
    GeneratorMethod(
        "seed",
        "`Generator.seed()`, and so `torch.openreg.seed()`",
        "Starts anew from a seed that nobody can foretell, and returns it.",
        "generator-delegate",
        "test_generator.py::test_seed_draws_another_seed_and_returns_it",
    ),
    GeneratorMethod(
        "get_state",
        "`Generator.get_state()`, `fork_rng()`, activation checkpointing, "
        "`pickle`",
        "A uint8 tensor on the CPU, from which drawing can go on.",
        "generator-delegate",
        "test_generator.py::test_state_can_be_read_set_and_cloned",
    ),
    GeneratorMethod(
        "set_state",
        "`Generator.set_state()`, and the same three on the way back",
        "Goes on from such a tensor; anything else is refused.",
        "generator-delegate",
        "test_generator.py::test_state_can_be_read_set_and_cloned",
    ),
    GeneratorMethod(
        "get_offset",
        "`Generator.get_offset()`; `pickle` and `copy.deepcopy`",
        "0: the CPU's engine has none.",
        "generator-offset",
        "test_generator.py::"
        "test_it_has_no_offset_but_gives_one_to_whoever_copies_it",
    ),
    GeneratorMethod(
        "set_offset",
        "`Generator.set_offset()`; the same two on the way back",
        "Takes 0 and refuses all else.",
        "generator-offset",
        "test_generator.py::"
        "test_it_has_no_offset_but_gives_one_to_whoever_copies_it",
    ),
    GeneratorMethod(
        "graphsafe_get_state",
        "`Generator.graphsafe_get_state()`",
        "A generator with the same inner one, not a copy.",
        "generator-graphsafe",
        "test_generator.py::test_what_one_draws_the_other_has_drawn",
    ),
    GeneratorMethod(
        "graphsafe_set_state",
        "`Generator.graphsafe_set_state()`",
        "Takes over another one's inner generator.",
        "generator-graphsafe",
        "test_generator.py::test_a_state_is_taken_over_and_the_old_one_let_go",
    ),
    GeneratorMethod(
        "clone_impl",
        "`Generator.clone_state()`",
        "A generator that stands where this one does, and shares nothing.",
        "generator-clone",
        "test_generator.py::test_a_clone_goes_its_own_way",
    ),
]


def generator_methods() -> str:
    """Every method of PyTorch's generator interface, and who asks it."""
    interface = methods("generator")
    return table(
        ("Method", "Asked by", "Here", "Test"),
        (
            (
                f"[`{m.name}`](#{m.region})"
                + (
                    "" if interface[m.name].default is None else " *(optional)*"
                ),
                m.asked_by,
                m.ours,
                f"`{m.test}`{{.said}}",
            )
            for m in GENERATOR_METHODS
        ),
    )
