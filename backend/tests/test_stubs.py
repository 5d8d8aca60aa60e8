"""DispatchStub: which can be registered, and whom ours serve."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

import _rows
from _extension import STUBS, listed_stubs
from _fresh import prints

pytestmark = pytest.mark.one_mode

BACKEND = Path(__file__).parents[1]
TORCH = Path(torch.__file__).parent
SERVED = _rows.read("stubs")["served"]
# Where a header declares stubs that are not in at::native itself.
SPACES = {"ATen/native/CPUBlas.h": "cpublas::"}
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
    calls: list[tuple[Any, list[Any], Any]] = [(attention, [heads] * 3, {})]
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
    for operator, positional, keywords in calls:
        try:
            operator(*positional, **keywords)
        except Exception as error:
            if asked := re.match(r"asked: (\w+)", str(error)):
                found[asked[1]].append(operator.name().removeprefix("aten::"))
    return {stub: sorted(names) for stub, names in found.items()}


def declared() -> dict[str, list[str]]:
    """Header -> the stubs that it declares, in the installed PyTorch."""
    found: dict[str, list[str]] = {}
    include = TORCH / "include"
    for path in sorted((include / "ATen").rglob("*.h")):
        header = path.relative_to(include).as_posix()
        text = re.sub(r"//.*", "", path.read_text("utf-8"))
        for match in re.finditer(r"^\s*DECLARE_DISPATCH\((.*)", text, re.M):
            # The last word before the bracket that closes the macro's.
            rest = text[match.start(1) :]
            depth, end = 1, 0
            while depth:
                depth += {"(": 1, ")": -1}.get(rest[end], 0)
                end += 1
            name = re.search(r"(\w+)\s*$", rest[: end - 1])
            if name:
                space = SPACES.get(header, "")
                found.setdefault(header, []).append(space + name[1])
    return found


def exported() -> set[str]:
    """The data that libtorch_cpu.so exports from at::native."""
    symbols = subprocess.run(
        ["nm", "-DC", "--defined-only", TORCH / "lib/libtorch_cpu.so"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return set(re.findall(r" [BD] at::native::([\w:]+)$", symbols, re.M))


def installed_stubs() -> dict[str, list[str]]:
    """Header -> the stubs that it declares and the library exports."""
    symbols = exported()
    both = {
        header: [name for name in names if name in symbols]
        for header, names in declared().items()
    }
    return {header: names for header, names in both.items() if names}


@pytest.fixture(scope="module")
def asked() -> dict[str, list[str]]:
    printed = prints(
        """
        import json, sys
        sys.path[:0] = sys.argv[1:]
        from _extension import load_every_stub
        load_every_stub()
        from test_stubs import asks
        print(json.dumps(asks()))
        """,
        str(Path(__file__).parent),
    )
    return json.loads(printed.splitlines()[-1])


@pytest.mark.proves("stubs-all")
def test_every_listed_stub_can_be_registered(asked) -> None:
    """Or the extension that registers them had not been built and loaded."""
    assert asked
    assert sum(map(len, listed_stubs().values())) > 400


def test_the_list_of_pytorchs_stubs_is_as_recorded(
    pytestconfig: pytest.Config,
) -> None:
    """If not: nox -s accept, and read what changed."""
    now = installed_stubs()
    if pytestconfig.getoption("accept"):
        lines = (f"{header}: {' '.join(now[header])}\n" for header in now)
        STUBS.write_text("".join(lines))
    assert listed_stubs() == now


@pytest.mark.proves("stubs-served")
def test_a_stub_that_throws_its_name_tells_whom_it_serves(asked) -> None:
    assert asked == {row["stub"]: row["operators"] for row in SERVED}


@pytest.mark.proves("checklist.stubs")
def test_every_stub_we_register_is_a_row() -> None:
    sources = (BACKEND / "csrc/aten").rglob("*.cpp")
    ours = {
        stub
        for source in sources
        for stub in re.findall(
            r"^REGISTER_PRIVATEUSE1_DISPATCH\(\s*(\w+)",
            source.read_text("utf-8"),
            re.MULTILINE,
        )
    }
    assert {row["stub"] for row in SERVED} == ours


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
    with pytest.raises(NotImplementedError, match="implemented for 'UInt16"):
        torch.ones(2, dtype=torch.uint16, device="openreg").abs()
    with pytest.raises(RuntimeError, match="at least two devices"):
        torch.abs(torch.ones(2, device="openreg"), out=torch.ones(2))
    x = torch.full((2,), -1.0, device="openreg")
    assert x.abs().tolist() == [1.0, 1.0]


# The structured kernels that are called by hand, with a result that is given.


def both(function, *shapes: int | tuple[int, ...]) -> None:
    """`function` of the same tensors on the CPU and on the device, with out."""
    torch.manual_seed(0)
    host = [torch.randn(shape) for shape in shapes]
    device = [tensor.to("openreg") for tensor in host]
    with torch.openreg.stream(torch.openreg.Stream()):
        expected, found = function(*host), function(*device)
        torch.accelerator.synchronize()
    assert torch.equal(found.cpu(), expected)
    assert found.stride() == expected.stride()
    assert found.dtype == expected.dtype


OUT = {"add": torch.add, "sub": torch.sub, "mul": torch.mul}
out_forms = pytest.mark.parametrize("operator", OUT.values(), ids=OUT)


@out_forms
def test_out_is_written_through_its_strides(operator) -> None:
    def into(x: torch.Tensor, y: torch.Tensor, whole: torch.Tensor):
        given = whole.t()[:, ::2]
        assert operator(x, y, out=given) is given
        return whole

    both(into, (3, 2), (1, 2), (4, 3))


@out_forms
@pytest.mark.parametrize(
    "arrange",
    [
        lambda t: t,
        lambda t: t.transpose(1, 3),
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t[:, :0],
    ],
    ids=["contiguous", "transposed", "channels_last", "empty"],
)
def test_an_empty_out_takes_shape_and_strides(operator, arrange) -> None:
    def into(x: torch.Tensor, y: torch.Tensor):
        out = torch.empty(0, device=x.device)
        operator(arrange(x), arrange(y), out=out)
        return out

    both(into, (2, 3, 4, 5), (2, 3, 4, 5))


@out_forms
@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_an_out_of_another_shape_is_resized_with_a_warning(operator) -> None:
    def into(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor):
        with pytest.warns(UserWarning, match="was resized"):
            operator(x, y, out=out)
        return out

    both(into, (2, 3), (2, 3), (5,))


@out_forms
def test_out_may_be_an_argument(operator) -> None:
    both(lambda x, y: operator(x, y, out=x), (4, 4), (4,))
    both(lambda x, y: operator(y, x, out=x), (4, 4), (4,))
    both(lambda x: operator(x.t(), x.t(), out=x.t()), (4, 4))


@out_forms
def test_out_of_another_dtype_is_converted_to(operator) -> None:
    def into(x: torch.Tensor, y: torch.Tensor):
        return operator(x, y, out=torch.zeros(2, 3, device=x.device).double())

    both(into, (2, 3), (2, 3))
    both(lambda x, y: into(x, y.half()), (2, 3), (2, 3))


@out_forms
def test_an_out_that_cannot_be_is_refused_as_by_the_cpu(operator) -> None:
    x = torch.ones(3, device="openreg")
    for call in (
        lambda x, out: operator(x, x, out=out(x, torch.long)),
        lambda x, out: operator(x[:3], x[:3], out=x[1:]),
        lambda x, out: operator(x, x, out=x[:1].expand(4)),
    ):
        messages = set()
        for device in "cpu", "openreg":
            with pytest.raises(RuntimeError) as error:
                call(
                    torch.ones(4, device=device),
                    lambda x, dtype: torch.ones_like(x, dtype=dtype),
                )
            messages.add(str(error.value))
        assert len(messages) == 1
    assert operator(x, x, out=x).shape == (3,)


@out_forms
@pytest.mark.parametrize("where", ["cpu", "openreg:1"])
def test_an_out_elsewhere_is_refused(operator, where: str) -> None:
    here, out = torch.ones(2, device="openreg:0"), torch.ones(2, device=where)
    for arguments in (here, here), (out, here), (here, out):
        with pytest.raises(RuntimeError, match="at least two devices"):
            operator(*arguments, out=out)
    with pytest.raises(RuntimeError, match="at least two devices"):
        operator(torch.ones(2), torch.ones(2), out=here)
    assert operator(here, here, out=here).device == here.device


@out_forms
def test_an_out_in_autograd_is_refused(operator) -> None:
    x = torch.ones(2, device="openreg", requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic diff"):
        operator(x, x, out=torch.empty(2, device="openreg"))
