"""The tables of book/chapters/fallback.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


class Argument(NamedTuple):
    what: str
    how: str  # what becomes of it
    test: str  # class::function in backend/tests/test_fallback.py


FALLBACK_ARGUMENTS = [
    Argument(
        "a tensor with strides",
        "A copy with the same strides; dense if elements are shared or "
        "left out.",
        "TestArguments::test_strides",
    ),
    Argument(
        "a conjugate or negative view",
        "A copy of the values that it shows.",
        "TestArguments::test_conjugate_and_negative_views",
    ),
    Argument(
        "a zero tensor of autograd",
        "A copy full of zeros.",
        "TestArguments::test_a_zero_tensor",
    ),
    Argument(
        "`Tensor?`",
        "`None` stays `None`.",
        "TestArguments::test_an_optional_tensor",
    ),
    Argument(
        "`Tensor[]`, `Tensor?[]`",
        "A list of copies; lists of results are treated likewise.",
        "TestArguments::test_lists",
    ),
    Argument(
        "a number in a 0-dim CPU tensor",
        "Used as it is.",
        "TestArguments::test_a_number_from_the_host",
    ),
    Argument(
        "`Device?`",
        "The kernel gets `cpu`, the result goes to the device.",
        "TestArguments::test_a_device",
    ),
    Argument(
        "`Generator?`",
        "The device's own draws, or the one that is given.",
        "TestGenerators::test_the_devices_own_draws",
    ),
    Argument(
        "`Tensor(a!)`, in place",
        "The copy is written back, through strides; a kernel that fails "
        "leaves the tensor as it was.",
        "TestWriting::test_in_place_through_strides",
    ),
    Argument(
        "`Tensor(a!) out`",
        "The same; if the kernel resized it, it is resized.",
        "TestWriting::test_out_is_resized",
    ),
    Argument(
        "`Tensor(a!) out` that is not contiguous",
        "The kernel gets one that is, which is copied back; some kernels "
        "mind no strides.",
        "TestWriting::test_out_may_have_any_strides",
    ),
    Argument(
        "`Tensor(a!)[]`",
        "Each is written back.",
        "TestWriting::test_a_list",
    ),
    Argument(
        "one tensor twice",
        "One copy.",
        "TestWriting::test_an_argument_that_is_passed_twice",
    ),
    Argument(
        "one that requires a gradient",
        "Recorded, as a kernel made of operators is on the CPU.",
        "TestAutograd::test_a_gradient_goes_through_what_is_written",
    ),
]


class Refusal(NamedTuple):
    what: str
    says: str  # a part of the message
    test: str  # class::function in backend/tests/test_fallback.py


FALLBACK_REFUSALS = [
    Refusal(
        "a view operator",
        "cannot make a view",
        "TestRefusals::test_a_view_operator",
    ),
    Refusal(
        "an operator that may draw and takes no generator",
        "takes no generator",
        "TestRefusals::test_a_draw_that_takes_no_generator",
    ),
    Refusal(
        "tensors on two devices",
        "to be on the same device",
        "TestRefusals::test_tensors_on_two_devices",
    ),
    Refusal(
        "a CPU tensor to write to",
        "to be on the same device",
        "TestRefusals::test_writing_to_a_number_on_the_host",
    ),
    Refusal(
        "a sparse tensor",
        "'Sparseopenreg' backend",
        "TestRefusals::test_sparse_tensors",
    ),
    Refusal(
        "a result in a layout of the CPU's own",
        "Unsupported device type for mkldnn layout: openreg",
        "TestRefusals::test_results_that_cannot_be_on_the_device",
    ),
    Refusal(
        "a generator of another device",
        "Expected a 'openreg:0' generator device",
        "TestGenerators::test_one_of_another_device_is_refused",
    ),
    Refusal(
        "writing to a zero tensor",
        "ZeroTensors are immutable",
        "TestRefusals::test_zero_tensors_are_not_written",
    ),
    Refusal(
        "writing to a leaf that requires a gradient",
        "a leaf Variable that requires",
        "TestAutograd::test_a_leaf_is_not_written",
    ),
    Refusal(
        "writing to what overlaps another argument in part",
        "Please clone() the tensor",
        "TestWriting::test_arguments_that_overlap_in_part_are_refused",
    ),
    Refusal(
        "writing to what overlaps itself",
        "Please clone() the tensor",
        "TestWriting::test_a_tensor_that_overlaps_itself_is_refused",
    ),
]


def fallback_arguments() -> str:
    return table(
        ("Argument", "What becomes of it", "Test"),
        ((row.what, row.how, f"`{row.test}`") for row in FALLBACK_ARGUMENTS),
    )


def fallback_refusals() -> str:
    return table(
        ("What", "The message speaks of", "Test"),
        (
            (row.what, f"`{row.says}`", f"`{row.test}`")
            for row in FALLBACK_REFUSALS
        ),
    )
