"""Nested tensors, strided and jagged: the CPU's values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

# PyTorch says once a process that nested tensors are a prototype.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors"
)

PARTS = [torch.arange(6.0).view(2, 3) / 5, torch.arange(12.0).view(4, 3) / 7]
LAYOUTS = [torch.strided, torch.jagged]


def make(device: str, layout: torch.layout = torch.strided) -> Tensor:
    return torch.nested.nested_tensor(PARTS, device=device, layout=layout)


def assert_same_parts(got: Tensor, expected: Tensor) -> None:
    """The same tensors in it, on the device."""
    assert got.device.type == "openreg"
    assert got.layout == expected.layout
    assert got.is_nested == expected.is_nested
    pairs = (
        zip(got.unbind(), expected.unbind(), strict=True)
        if got.is_nested
        else [(got, expected)]
    )
    for ours, theirs in pairs:
        assert ours.device == got.device
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.proves(
    "checklist.nested",
    "operators_special.kinds.nested",
    "operators_special.kinds.jagged",
)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_made_taken_apart_and_copied(layout: torch.layout) -> None:
    host, ours = make("cpu", layout), make("openreg:1", layout)
    assert ours.device == torch.device("openreg:1")
    assert_same_parts(ours, host)
    assert_same_parts(host.to("openreg"), host)
    assert_same_parts(ours.to("openreg:0"), host)
    assert_same_parts(ours.clone(), host)
    assert ours.cpu().device.type == "cpu"
    for back, part in zip(ours.cpu().unbind(), PARTS, strict=True):
        assert torch.equal(back, part)
    assert_same_parts(ours.double(), host.double())


def test_the_shapes_are_the_hosts() -> None:
    ours = make("openreg")
    assert (ours.dim(), ours.size(0), ours.size(2)) == (3, 2, 3)
    with pytest.raises(RuntimeError, match="dimension 1 is irregular"):
        ours.size(1)
    sizes = ours._nested_tensor_size()
    assert sizes.device.type == "cpu"
    assert sizes.tolist() == [[2, 3], [4, 3]]


def test_parts_are_views() -> None:
    ours = make("openreg")
    ours.unbind()[0].fill_(9)
    ours[1].zero_()
    assert ours[0].cpu().eq(9).all()
    assert ours.unbind()[1].cpu().eq(0).all()
    assert ours.add_(ours) is ours
    assert ours[0].cpu().eq(18).all()


def weight(x: Tensor) -> Tensor:
    return torch.arange(6.0, device=x.device).view(2, 3)


# Each gives a tensor that `finish` can sum.
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + x,
    "mul": lambda x: x * x * 2,
    "relu": torch.relu,
    "gelu": F.gelu,
    "softmax": lambda x: torch.softmax(x, -1),
    "linear": lambda x: F.linear(
        x, weight(x), torch.ones_like(weight(x)[:, 0])
    ),
    "layer norm": lambda x: F.layer_norm(
        x, [3], torch.ones_like(weight(x)[0]), torch.zeros_like(weight(x)[0])
    ),
}
STRIDED_ONLY: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1, keepdim=True),
    "matmul": lambda x: torch.matmul(x, x.transpose(1, 2)),
    "squeeze": lambda x: x.unsqueeze(1).transpose(1, 2).squeeze(2),
}
CASES = [(torch.strided, name) for name in OPERATORS | STRIDED_ONLY] + [
    (torch.jagged, name) for name in OPERATORS
]


@pytest.mark.proves("special-nested-gradients")
@pytest.mark.parametrize(("layout", "name"), CASES, ids=str)
def test_values_and_gradients_are_the_cpus(
    layout: torch.layout, name: str
) -> None:
    operator = (OPERATORS | STRIDED_ONLY)[name]
    results = []
    for device in ("cpu", "openreg"):
        leaves = [p.to(device).clone().requires_grad_() for p in PARTS]
        x = torch.nested.as_nested_tensor(leaves, layout=layout)
        y = operator(x)
        torch.nested.to_padded_tensor(y, 0.0).square().sum().backward()
        results.append((y.detach(), [leaf.grad for leaf in leaves]))
    (theirs, expected), (ours, gradients) = results
    assert_same_parts(ours, theirs)
    for got, grad in zip(gradients, expected, strict=True):
        assert torch.equal(got.cpu(), grad)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_padding_goes_both_ways(layout: torch.layout) -> None:
    host, ours = make("cpu", layout), make("openreg", layout)
    padded = torch.nested.to_padded_tensor(ours, -1.0)
    assert torch.equal(padded.cpu(), torch.nested.to_padded_tensor(host, -1.0))
    if layout == torch.strided:
        sizes = ours._nested_tensor_size()
        assert_same_parts(
            torch.ops.aten._nested_from_padded(padded, sizes), host
        )
        mask = padded[:, :, 0] >= 0
        assert_same_parts(torch._nested_tensor_from_mask(padded, mask), host)


def test_jagged_from_values_and_offsets() -> None:
    values, offsets = torch.arange(18.0).view(6, 3), torch.tensor([0, 2, 6])
    ours = torch.nested.nested_tensor_from_jagged(
        values.to("openreg"), offsets.to("openreg")
    )
    assert_same_parts(
        ours, torch.nested.nested_tensor_from_jagged(values, offsets)
    )
    assert ours.offsets().device.type == "openreg"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_attention_of_sequences_of_several_lengths(layout) -> None:
    def attend(device: str) -> Tensor:
        torch.manual_seed(0)
        parts = [torch.randn(n, 2, 4).to(device) for n in (2, 5, 3)]
        x = torch.nested.as_nested_tensor(parts, layout=layout)
        if layout == torch.strided:
            x = torch.nested.as_nested_tensor(
                [p.transpose(0, 1) for p in parts]
            )
            return F.scaled_dot_product_attention(x, x, x)
        y = x.transpose(1, 2)
        return F.scaled_dot_product_attention(y, y, y).transpose(1, 2)

    assert_same_parts(attend("openreg"), attend("cpu"))


def test_an_encoder_packs_what_is_masked() -> None:
    # Without gradients PyTorch nests the batch by itself.
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 4, 4)
    mask = torch.tensor([[False, False, False, True], [False] * 4])
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=mask)
        model.to("openreg")
        got = model(x.openreg(), src_key_padding_mask=mask.openreg())
    torch.testing.assert_close(got.cpu(), expected)


def test_dropout_draws_from_the_devices_generator() -> None:
    torch.manual_seed(3)
    expected = F.dropout(make("cpu"), 0.5)
    torch.manual_seed(3)
    assert_same_parts(F.dropout(make("openreg"), 0.5), expected)
    torch.manual_seed(3)
    torch.rand(1)  # the host's generator is another one
    assert_same_parts(F.dropout(make("openreg"), 0.5), expected)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_saved_and_loaded(layout: torch.layout, tmp_path) -> None:
    torch.save(make("openreg", layout), tmp_path / "n.pt")
    with torch.serialization.safe_globals(
        [torch.nested._internal.nested_tensor._rebuild_njt]
    ):
        loaded = torch.load(tmp_path / "n.pt")
    assert_same_parts(loaded, make("cpu", layout))


def test_nothing_nested_is_nested() -> None:
    none = torch.nested.nested_tensor([], device="openreg")
    assert (none + none).size(0) == 0
    short = torch.nested.nested_tensor(
        [torch.zeros(0, 3), torch.ones(1, 3)], device="openreg"
    )
    assert [len(p) for p in (short * 2).unbind()] == [0, 1]


def test_refusals_name_what_is_missing() -> None:
    ours = make("openreg")
    with pytest.raises(NotImplementedError) as raised:
        ours.exp()
    assert "'aten::exp'" in str(raised.value)
    assert "'NestedTensoropenreg' backend" in str(raised.value)
    for other in (make("cpu"), make("openreg:1")):
        with pytest.raises(RuntimeError, match="on the same device"):
            ours + other
    with pytest.raises(RuntimeError, match="cannot pin 'openreg"):
        ours.pin_memory()
    assert_same_parts(ours + ours, make("cpu") * 2)


def test_memory_of_the_buffer_goes_back() -> None:
    before = torch.openreg.memory_allocated()
    x = make("openreg")
    y = torch.matmul(x, x.transpose(1, 2))
    assert torch.openreg.memory_allocated() > before
    del x, y
    assert torch.openreg.memory_allocated() == before


@pytest.mark.parametrize("device", ["cpu", "openreg:0", "openreg:1"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_like_another_is_made_where_it_is_asked_for(
    layout: torch.layout, device: str
) -> None:
    x = make("openreg:0", layout)
    for like in (torch.empty_like, torch.zeros_like, torch.ones_like):
        made = like(x, device=device)
        assert made.device == torch.device(device)
        assert made.layout == layout
    for part, expected in zip(made.unbind(), PARTS, strict=True):
        assert torch.equal(part.cpu(), torch.ones_like(expected))
