"""DispatchStub: which can be registered, and whom ours serve."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import tables
from _fresh import prints

TYPES = {
    "Tensor": lambda: torch.ones(2, 2, device="openreg"),
    "number": lambda: 1,
    "int": lambda: 0,
    "float": lambda: 0.5,
}


def pointwise() -> list[torch._ops.OpOverload]:
    """The operators with this tag, and their forms in place."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, short = name.partition("::")
        base, _, overload = short.partition(".")
        if space == "aten":
            packet = getattr(torch.ops.aten, base)
            found.append(getattr(packet, overload or "default"))
    bases = {
        operator.overloadpacket._qualified_op_name
        for operator in found
        if torch.Tag.pointwise in operator.tags
    }
    return [
        operator
        for operator in found
        if {(n := operator.overloadpacket._qualified_op_name), n.rstrip("_")}
        & bases
    ]


def asks() -> dict[str, list[str]]:
    """Stub -> who asks it, of the pointwise operators, and attention.

    Called in a process in which every stub throws its name.
    """
    found = defaultdict(list)
    heads = torch.ones(1, 1, 2, 2, device="openreg")
    attention = torch.ops.aten.scaled_dot_product_attention.default
    calls = [(attention, [heads] * 3, {})]
    for operator in pointwise():
        needed = [
            argument
            for argument in operator._schema.arguments
            if not argument.has_default_value()
        ]
        if {str(argument.type) for argument in needed} <= set(TYPES):
            values = {a.name: TYPES[str(a.type)]() for a in needed}
            named = {a.name: values.pop(a.name) for a in needed if a.kwarg_only}
            calls.append((operator, list(values.values()), named))
    assert len(calls) > 500
    for operator, values, named in calls:
        try:
            operator(*values, **named)
        except Exception as error:
            if asked := re.match(r"asked: (\w+)", str(error)):
                found[asked[1]].append(operator.name().removeprefix("aten::"))
    return {stub: sorted(names) for stub, names in found.items()}


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> dict[str, list[str]]:
    printed = prints(
        """
        import json, sys
        from pathlib import Path
        sys.path[:0] = json.loads(sys.argv[2])
        from _extension import load_every_stub
        load_every_stub(Path(sys.argv[1]))
        from test_stubs import asks
        print(json.dumps(asks()))
        """,
        str(tmp_path_factory.mktemp("stubs")),
        json.dumps(
            [str(Path(__file__).parent), str(tables.ROOT / "book/_ext")]
        ),
    )
    return json.loads(printed.splitlines()[-1])


def test_every_listed_stub_can_be_registered(asked) -> None:
    """Or the extension that registers them had not been built and loaded."""
    assert asked
    assert sum(map(len, tables.listed_stubs().values())) > 400


def test_the_list_is_what_pytorch_declares_and_exports() -> None:
    """If not: python -m tables.stubs in book/_ext, and read what changed."""
    assert tables.listed_stubs() == tables.installed_stubs()


def test_a_stub_that_throws_its_name_tells_whom_it_serves(asked) -> None:
    assert asked == {row.stub: row.operators.split() for row in tables.SERVED}


def test_every_stub_we_register_is_a_row() -> None:
    sources = (tables.ROOT / "backend/csrc/aten").glob("*.cpp")
    ours = {
        stub
        for source in sources
        for stub in re.findall(
            r"^REGISTER_PRIVATEUSE1_DISPATCH\(\s*(\w+)",
            source.read_text("utf-8"),
            re.MULTILINE,
        )
    }
    assert {row.stub for row in tables.SERVED} == ours


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.int8, torch.complex64],
    ids=str,
)
def test_abs_by_its_stub_is_the_cpu_s(dtype: torch.dtype) -> None:
    host = (torch.randn(3, 4, 2) * 10).to(dtype)
    device = host.to("openreg:1")
    for view in (lambda t: t, lambda t: t.mT[..., ::2], lambda t: t[:0]):
        with torch.openreg.stream(torch.openreg.Stream(1)):
            found, expected = view(device).abs(), view(host).abs()
            torch.accelerator.synchronize(1)
        assert found.stride() == expected.stride()
        assert found.device == device.device
        assert torch.equal(found.cpu(), expected)


def test_abs_writes_in_place_and_through_the_strides_of_out() -> None:
    x = torch.tensor([-1.0, 2.0], device="openreg")
    whole = torch.zeros(4, device="openreg")
    torch.abs(x, out=whole[::2])
    assert whole.tolist() == [1.0, 0.0, 2.0, 0.0]
    alias = x.view(2)
    x.abs_()
    assert alias.tolist() == [1.0, 2.0]


def test_abs_raises_what_the_cpu_raises_and_the_device_goes_on() -> None:
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.ones(2, dtype=torch.bool, device="openreg").abs()
    with pytest.raises(RuntimeError, match="at least two devices"):
        torch.abs(torch.ones(2, device="openreg"), out=torch.ones(2))
    x = torch.full((2,), -1.0, device="openreg")
    assert x.abs().tolist() == [1.0, 1.0]
