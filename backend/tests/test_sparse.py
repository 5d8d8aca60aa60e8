"""Sparse tensors: the CPU's kernels, on the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

# PyTorch says once a process that CSR is in beta state.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")

DENSE = torch.tensor([[0.0, 2.0, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0]])
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "COO": lambda x: x.to_sparse(),
    "CSR": lambda x: x.to_sparse_csr(),
    "CSC": lambda x: x.to_sparse_csc(),
    "BSR": lambda x: x.to_sparse_bsr((2, 2)),
    "BSC": lambda x: x.to_sparse_bsc((2, 2)),
}
PARTS = {
    "COO": ("indices", "values"),
    "CSR": ("crow_indices", "col_indices", "values"),
    "CSC": ("ccol_indices", "row_indices", "values"),
    "BSR": ("crow_indices", "col_indices", "values"),
    "BSC": ("ccol_indices", "row_indices", "values"),
}


@pytest.mark.proves(
    "checklist.sparse",
    "operators_special.kinds.coo",
    "operators_special.kinds.compressed",
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_made_on_the_device(layout: str) -> None:
    expected = LAYOUTS[layout](DENSE)
    ours = LAYOUTS[layout](DENSE.to("openreg:1"))
    assert ours.device == torch.device("openreg:1")
    assert ours.layout == expected.layout
    for part in PARTS[layout]:
        assert getattr(ours, part)().device == torch.device("openreg:1")
        assert torch.equal(
            getattr(ours, part)().cpu(), getattr(expected, part)()
        )
    assert torch.equal(ours.to_dense().cpu(), DENSE)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_go_both_ways_and_between_devices(layout: str) -> None:
    there = LAYOUTS[layout](DENSE).to("openreg:0")
    assert there.device == torch.device("openreg:0")
    assert torch.equal(there.to("openreg:1").cpu().to_dense(), DENSE)
    assert torch.equal(there.clone().to_dense().cpu(), DENSE)


# The CPU has no product of a BSC tensor (torch 2.13).
@pytest.mark.parametrize("layout", ["COO", "CSR", "CSC", "BSR"])
def test_products_are_the_cpus(layout: str) -> None:
    factor = torch.arange(8.0).view(4, 2)
    expected = LAYOUTS[layout](DENSE) @ factor
    ours = LAYOUTS[layout](DENSE.to("openreg")) @ factor.to("openreg")
    assert torch.equal(ours.cpu(), expected)


def test_values_are_the_tensors_own_memory() -> None:
    x = DENSE.to("openreg").to_sparse()
    x.values().mul_(10)
    assert torch.equal(x.to_dense().cpu(), DENSE * 10)


def test_in_place_kernels_change_the_tensor() -> None:
    x = DENSE.to("openreg").to_sparse()
    y = torch.eye(2, 4, device="openreg").to_sparse()
    assert x.add_(y) is x
    assert torch.equal(x.to_dense().cpu(), DENSE + torch.eye(2, 4))
    x.zero_()
    assert x._nnz() == 0
    x.copy_(y)
    assert torch.equal(x.to_dense().cpu(), torch.eye(2, 4))


def test_parts_that_a_kernel_resizes_are_resized() -> None:
    x = DENSE.to("openreg").to_sparse_csr()
    x.zero_()
    assert (x._nnz(), len(x.values()), len(x.col_indices())) == (0, 0, 0)
    assert not x.to_dense().cpu().any()
    rows = torch.ones(3, 5, device="openreg").index_fill(
        0, torch.tensor([1], device="openreg"), 0
    )
    rows = rows.to_sparse(1)
    rows.sparse_resize_((6, 6), 1, 1)
    assert (rows.shape, rows._values().shape) == ((6, 6), (2, 6))


def test_coalescing_sums_what_is_there_twice() -> None:
    indices = torch.tensor([[0, 0, 1], [1, 1, 0]], device="openreg")
    values = torch.tensor([1.0, 2.0, 4.0], device="openreg")
    x = torch.sparse_coo_tensor(indices, values, (2, 2), check_invariants=True)
    assert not x.is_coalesced()
    assert x.coalesce().values().tolist() == [3, 4]
    assert x.coalesce().is_coalesced()


def test_gradients_of_an_embedding_may_be_sparse() -> None:
    weights = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(0)
        table = torch.nn.Embedding(5, 3, sparse=True).to(device)
        adam = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        for _ in range(3):
            adam.zero_grad()
            table(torch.tensor([1, 3, 1]).to(device)).square().sum().backward()
            assert table.weight.grad.is_sparse
            adam.step()
        weights.append(table.weight.detach().cpu())
    assert torch.equal(*weights)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_a_reducing_product_has_its_gradients(reduce) -> None:
    gradients = []
    for device in ("cpu", "openreg"):
        x = DENSE.to(device).to_sparse_csr().requires_grad_()
        y = (torch.arange(8.0).reshape(4, 2) - 2).to(device, copy=True)
        y.requires_grad_()
        torch.sparse.mm(x, y, reduce).square().sum().backward()
        gradients.append((x.grad.to_dense().cpu(), y.grad.cpu()))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("device", ["cpu", "openreg:0", "openreg:1", "meta"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_like_another_is_made_where_it_is_asked_for(
    layout: str, device: str
) -> None:
    host = LAYOUTS[layout](DENSE)
    x = host.to("openreg:0")
    full = () if layout == "COO" else (torch.ones_like, torch.randn_like)
    for like in (torch.empty_like, torch.zeros_like, *full):
        for source in (x, host):
            made = like(source, device=device)
            assert made.device == torch.device(device)
            assert (made.layout, made.shape) == (x.layout, x.shape)
            assert getattr(made, PARTS[layout][-1])().device == made.device
    if full and device != "meta":
        values = torch.ones_like(x, device=device).values().cpu()
        assert torch.equal(values, torch.ones_like(host).values())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_of_the_device_is_not_pinned(layout: str) -> None:
    x = LAYOUTS[layout](DENSE).to("openreg")
    assert not x.is_pinned()
    assert LAYOUTS[layout](DENSE).pin_memory().is_pinned()
    for pin in (
        x.pin_memory,
        lambda: x.new_empty((2, 4), pin_memory=True),
        lambda: torch.tril_indices(2, 2, pin_memory=True, device="openreg"),
    ):
        with pytest.raises(RuntimeError, match="dense CPU tensors can be pin"):
            pin()


@pytest.mark.proves("messages.tensors-of-one-device-and-the-name-of-another")
@pytest.mark.parametrize("device", ["cpu", "openreg:1"])
def test_parts_are_not_taken_for_those_of_another_device(device: str) -> None:
    parts = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
    indices, values = (part.to("openreg:0") for part in parts)
    make = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors
    arguments = (1, 0, [2], indices, values)
    with pytest.raises(RuntimeError) as refusal:
        make(*arguments, layout=torch.sparse_coo, device=device)
    assert str(refusal.value) == (
        "openreg: 'aten::_sparse_coo_tensor_with_dims_and_tensors' got tensors "
        f"on openreg:0 and device='{device}'; expected the same device. "
        f"Move the tensors first, as x.to('{device}') does."
    )
    made = make(*arguments, layout=torch.sparse_coo, device="openreg:0")
    assert made.to_dense().tolist() == [1, 0]


def test_mixed_devices_are_refused() -> None:
    x = DENSE.to("openreg").to_sparse()
    with pytest.raises(RuntimeError, match="on the same device"):
        x + DENSE.to_sparse()
    with pytest.raises(RuntimeError, match="on the same device"):
        x + DENSE.to("openreg:1").to_sparse()
    assert torch.equal((x + x).to_dense().cpu(), DENSE * 2)


def test_a_sparse_tensor_can_be_saved_and_loaded(tmp_path) -> None:
    x = DENSE.to("openreg").to_sparse()
    torch.save(x, tmp_path / "x.pt")
    y = torch.load(tmp_path / "x.pt")
    assert y.device.type == "openreg"
    assert torch.equal(y.to_dense().cpu(), DENSE)


def test_memory_of_the_parts_goes_back() -> None:
    before = torch.openreg.memory_allocated()
    x = DENSE.to("openreg").to_sparse()
    y = (x + x).coalesce().to_dense()
    del x, y
    assert torch.openreg.memory_allocated() == before
