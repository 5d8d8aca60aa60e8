"""The tables of the dispatcher chapter: complete, and true of this PyTorch."""

import doctest
import json

import pytest
import torch
from _pages import svg

from _fresh import prints
from rows import Row, load, rows
from tables import dispatcher

Groups = dict[str, set[str]]

C = torch._C
TOOLS = rows("dispatcher.tools")

# All calls in one process of their own: some change the dispatcher.
CALLS = f"""
import json
import torch
C = torch._C
x = torch.ones(2, device="openreg")
add = C._dispatch_find_schema_or_throw("aten::add", "Tensor")
lab = torch.library.Library("lab", "DEF")
lab.define("thirds(Tensor x) -> Tensor")
thirds = C._dispatch_find_schema_or_throw("lab::thirds", "")
answers = [repr(eval(call)) for call in {[t.call for t in TOOLS]}]
print("")
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    # What the dispatcher itself printed comes before or after, as it likes.
    (line,) = (x for x in prints(CALLS).splitlines() if x.startswith("["))
    found = json.loads(line)
    names = [tool.name for tool in TOOLS]
    return dict(zip(names, found, strict=True))


def test_every_tool_is_a_row() -> None:
    here = [name for name in dir(torch._C) if name.startswith("_dispatch_")]
    assert sorted(tool.name for tool in TOOLS) == sorted(here)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_answers(answers: dict[str, str], tool: Row) -> None:
    assert f"C.{tool.name}" in tool.call
    got = answers[tool.name]
    assert doctest.OutputChecker().check_output(
        tool.answer + "\n", got + "\n", doctest.ELLIPSIS
    ), got


@pytest.mark.parametrize("name", load("dispatcher")["removed_tools"])
def test_removed_tools_are_gone(name: str) -> None:
    assert not hasattr(torch._C, name)


# Composite kernels


def test_an_alias_key_says_what_runs() -> None:
    """A kernel of the backend's own comes first, then the composite ones."""
    for operator in load("dispatcher")["path_operators"]:
        keys = dispatcher.registered(operator)
        for backend in "CPU", "PrivateUse1":
            if backend in keys:
                expected = "kernel"
            elif keys & set(dispatcher.COMPOSITES[:2]):
                expected = "default backend kernel"
            else:
                assert dispatcher.COMPOSITES[2] in keys
                expected = "math kernel"
            assert dispatcher.chosen(operator, backend) == expected


def test_the_rows_show_every_way_that_a_table_can_look() -> None:
    paths = load("dispatcher")["path_operators"]
    ways = {dispatcher.chosen(path, "PrivateUse1") for path in paths}
    assert ways == {"kernel", "default backend kernel", "math kernel"}
    shown = set.union(*map(dispatcher.registered, paths))
    assert set(dispatcher.COMPOSITES) <= shown


def test_who_overrides_a_composite_above_autograd_takes_autograd_over() -> None:
    overridden = {
        name
        for name in dispatcher.aten_operators()
        if dispatcher.chosen(name, "PrivateUse1") == "kernel"
        and "CompositeImplicitAutograd" in dispatcher.registered(name)
        and not dispatcher.registered(name) & set(dispatcher.COMPOSITES[:2])
        and dispatcher.chosen(name, "CPU") != "kernel"
    }
    assert "aten::linear" not in overridden
    without = {
        n
        for n in overridden
        if "AutogradPrivateUse1" not in dispatcher.registered(n)
    }
    # These are not differentiable in the first place.
    fixed = "aten::fbgemm_", "aten::_sobol_engine_"
    assert {n for n in without if not n.startswith(fixed)} == {
        "aten::_has_compatible_shallow_copy_type",
        "aten::_saturate_weight_to_fp16",
        "aten::choose_qparams_optimized",
    }


# The operator set


@pytest.fixture(scope="module")
def groups() -> Groups:
    return dispatcher.operator_groups()


def test_what_runs_on_the_cpu_divides_the_set(groups: Groups) -> None:
    *parts, everything = (
        groups["with a kernel for the CPU"],
        groups["composite, below autograd"],
        groups["composite, above autograd"],
        groups["nothing for the CPU: another device's, or sparse, nested ..."],
        groups["all of ATen"],
    )
    assert set.union(*parts) == everything
    assert sum(map(len, parts)) == len(everything)


def test_the_counts_agree_with_the_schemas(groups: Groups) -> None:
    """Counted another way: from the signatures, and the CPU's own list."""
    schemas = {n: op._schema for n, op in dispatcher.aten_operators().items()}

    def arguments(flag: str) -> set[str]:
        return {
            name
            for name, schema in schemas.items()
            if any(getattr(a, flag) for a in schema.arguments)
        }

    assert groups["`out=`"] == arguments("is_out")
    assert groups["in place"] <= {n for n, s in schemas.items() if s.is_mutable}
    assert groups["views"] == {
        name
        for name, schema in schemas.items()
        if any(
            r.alias_info and not r.alias_info.is_write for r in schema.returns
        )
    }
    on_cpu = set(C._dispatch_get_registrations_for_dispatch_key("CPU"))
    assert groups["with a kernel for the CPU"] == on_cpu & set(schemas)


def test_the_sizes_are_those_that_the_page_speaks_of(groups: Groups) -> None:
    everything = len(groups["all of ATen"])
    assert round(everything / len(groups["with a kernel for the CPU"])) == 3
    core = groups["core: what `torch.export` reduces programs to"]
    assert 150 < len(core) < 250
    assert 0 < len(core & groups["composite, below autograd"]) < len(core) / 2


def test_each_operator_is_at_one_step_of_the_order(groups: Groups) -> None:
    steps = [*dispatcher.order_of_work().values()]
    assert sum(map(len, steps)) == len(set.union(*steps))
    assert all(steps)
    assert groups["with a kernel for the CPU"] <= set.union(*steps)
    assert set.union(*steps) <= groups["all of ATen"]


def test_what_only_a_backend_is_asked_for_has_no_kernel_for_the_cpu() -> None:
    names = [*dispatcher.order_of_work().values()][1]
    assert "aten::convolution_overrideable" in names
    assert "aten::_thnn_fused_lstm_cell" in names
    on_cpu = set(C._dispatch_get_registrations_for_dispatch_key("CPU"))
    assert not names & on_cpu


def test_the_default_kernels_make_two_forms_of_the_out_form() -> None:
    names = [*dispatcher.order_of_work().values()][4]
    assert {"aten::xlogy.Tensor", "aten::exp_", "aten::mul_.Tensor"} <= names
    for name in names:
        base = name.removeprefix("aten::").partition(".")[0]
        packet = getattr(torch.ops.aten, base.rstrip("_"))
        assert any(
            torch.Tag.out in getattr(packet, overload).tags
            for overload in packet.overloads()
        ), name


# Fallthrough


def test_the_exempt_operators_are_fallthroughs() -> None:
    ask = C._dispatch_kernel_for_dispatch_key_is_fallthrough
    for key in "Conjugate", "Negative", "ZeroTensor":
        names = dispatcher.exempt(key)
        assert len(names) > 50
        assert all(ask(f"aten::{name}", key) for name in names)
        assert "clone" in names


def test_our_exemptions_are_the_four_of_the_copies() -> None:
    ours = {
        (row.name, name)
        for row in rows("dispatcher.passing")
        for name, file in dispatcher.exempt(row.name).items()
        if "csrc/aten/core/copy.cpp" in file
    }
    assert ours == {
        (key, name)
        for key in ("Conjugate", "Negative")
        for name in ("_copy_from", "_copy_from_and_resize")
    }


# The drawing of the keys


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.ones(2, 2, device="openreg")


def test_the_keys_are_those_of_a_tensor_the_last_first(x: torch.Tensor) -> None:
    said = C._dispatch_key_set(x).removeprefix("DispatchKeySet(")[:-1]
    keys = said.split(", ")[::-1]
    assert dispatcher.keys_of(x) == keys
    bold = svg(dispatcher.key_drawing()).findall("text[@class='key']")
    assert [text.text for text in bold] == keys


def test_a_call_enters_each_key_that_does_not_fall_through() -> None:
    keys, found = dispatcher.calls_under_autocast()
    for call, operator in dispatcher.DRAWN_CALLS.items():
        table = C._dispatch_dump_table(operator).splitlines()
        assert found[call] == [
            key
            for key in keys
            if not any(x.startswith(f"{key}: fallthrough") for x in table)
        ]
    assert set.union(*map(set, found.values())) == set(keys)


def test_what_is_entered_is_seen_and_not_looked_up(x: torch.Tensor) -> None:
    """Autocast's key is excluded while it is off, kernel or not."""
    keys, before = dispatcher.keys_of(x), C._dispatch_dump("aten::mm")
    results = []
    off = dispatcher.entered("aten::mm", keys, lambda: results.append(x.mm(x)))
    assert off == ["AutogradPrivateUse1", "PrivateUse1"]
    assert results[0].tolist() == [[2, 2], [2, 2]]
    assert dispatcher.entered("aten::mm", keys, lambda: None) == []
    assert C._dispatch_dump("aten::mm") == before


def test_the_boxes_are_what_was_entered_and_the_thick_ones_ours() -> None:
    _, found = dispatcher.calls_under_autocast()
    drawing = svg(dispatcher.key_drawing())
    assert len(drawing.findall("rect")) == sum(map(len, found.values()))
    ours = [
        operator
        for operator in dispatcher.DRAWN_CALLS.values()
        for key in ("PrivateUse1", "AutocastPrivateUse1")
        if operator in C._dispatch_get_registrations_for_dispatch_key(key)
    ]
    assert len(drawing.findall("rect[@class='strong']")) == len(ours) == 3
    label = drawing.get("aria-label", "")
    assert "x.t() at ADInplaceOrView: kernel, entered as number 2;" in label
    assert "x.mm(x) at ADInplaceOrView: fallthrough;" in label
