"""Storages of a device: their size, their owners, and where tensors get one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from _tensors import ascending

MIB = 1 << 20


def allocated(device: int = 0) -> int:
    return torch.accelerator.memory_allocated(device)


# Resizing.


@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
def test_a_storage_grows_and_keeps_its_bytes(device: str) -> None:
    x = ascending(4, device=device)
    storage = x.untyped_storage()
    assert storage.resize_(40) is storage
    assert (storage.nbytes(), str(storage.device)) == (40, device)
    assert x.tolist() == [0, 1, 2, 3]
    longer = torch.empty(0, device=device).set_(storage)
    assert longer.shape == (10,)
    assert longer[:4].tolist() == [0, 1, 2, 3]
    longer.fill_(7)
    assert x.tolist() == [7, 7, 7, 7]


def test_a_storage_shrinks_and_keeps_what_is_left() -> None:
    x = ascending(4)
    x.untyped_storage().resize_(8)
    y = torch.empty(0, device="openreg").set_(x.untyped_storage())
    assert y.tolist() == [0, 1]


@pytest.mark.proves("storage.changes.resize_0")
def test_a_storage_resized_to_nothing_frees_its_memory() -> None:
    before = allocated()
    x = torch.ones(MIB, device="openreg")
    x.untyped_storage().resize_(0)
    assert (allocated(), x.untyped_storage().data_ptr()) == (before, 0)
    x.untyped_storage().resize_(4 * MIB)
    assert x.fill_(2).sum().item() == 2 * MIB


@pytest.mark.proves("storage.changes.resize")
def test_views_follow_their_storage_when_it_is_resized() -> None:
    x = ascending(6)
    view = x[2:]
    x.untyped_storage().resize_(48)
    x.mul_(2)
    assert view.tolist() == [4, 6, 8, 10]


@pytest.mark.proves("operators-full-device")
def test_a_full_device_leaves_the_storage_as_it_was() -> None:
    x = ascending(4)
    capacity = torch.accelerator.get_memory_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match="openreg out of memory"):
        x.untyped_storage().resize_(capacity + 1)
    assert x.untyped_storage().nbytes() == 16
    assert x.add_(1).tolist() == [1, 2, 3, 4]


@pytest.mark.proves("messages.trying-to-resize-storage-that-is")
def test_a_storage_of_foreign_memory_is_not_resized() -> None:
    x = ascending(4)
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    for change in (
        lambda: y.untyped_storage().resize_(400),
        lambda: y.resize_(100),
    ):
        with pytest.raises(
            RuntimeError, match="Trying to resize storage that is not resizable"
        ):
            change()
    assert y.add_(1).tolist() == x.tolist() == [1, 2, 3, 4]


# set_ and .data


@pytest.mark.proves("storage.changes.set")
def test_set_gives_a_tensor_another_storage() -> None:
    x, y = ascending(6), torch.zeros(2, device="openreg")
    y.set_(x.untyped_storage(), 1, (2, 2), (1, 2))
    assert y.tolist() == [[1, 3], [2, 4]]
    y.zero_()
    assert x.tolist() == [0, 0, 0, 0, 0, 5]
    assert y.set_(x).shape == (6,)
    assert y.set_().shape == (0,)
    assert x.tolist() == [0, 0, 0, 0, 0, 5]


def test_set_makes_room_for_a_larger_shape() -> None:
    x = ascending(2)
    y = torch.empty(0, device="openreg").set_(x.untyped_storage(), 0, (4,))
    assert x.untyped_storage().nbytes() == 16
    assert y[:2].tolist() == [0, 1]


def refuse(call: Callable[[], object], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


def test_set_refuses_a_storage_from_elsewhere() -> None:
    x = ascending(3)
    for other in (torch.ones(3), ascending(3, device="openreg:1")):
        storage = other.untyped_storage()
        refuse(
            partial(x.set_, storage),
            "Attempted to set the storage of a tensor on device",
        )
    assert x.tolist() == [0, 1, 2]


@pytest.mark.proves("storage.changes.data")
@pytest.mark.parametrize("there", ["openreg:0", "openreg:1", "cpu"])
@pytest.mark.parametrize("here", ["openreg:0", "cpu"])
def test_data_may_come_from_the_other_side(here: str, there: str) -> None:
    x = torch.nn.Parameter(torch.ones(3, device=here))
    old = x.data
    new = ascending(2, device=there)
    x.data = new
    assert (str(x.device), x.shape, x.requires_grad) == (there, (2,), True)
    new.add_(1)
    assert x.tolist() == [1, 2]
    assert (str(old.device), old.tolist()) == (here, [1, 1, 1])
    (x * x).sum().backward()
    assert x.grad is not None
    assert (str(x.grad.device), x.grad.tolist()) == (there, [2, 4])


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.ones(2, device="meta"),
        lambda: torch.eye(2).to_sparse(),
    ],
    ids=["meta", "sparse"],
)
def test_data_of_another_kind_is_refused(
    other: Callable[[], torch.Tensor],
) -> None:
    x = ascending(2)

    def assign() -> None:
        x.data = other()

    refuse(assign, "`variable` and `tensor` have incompatible tensor type")
    assert x.tolist() == [0, 1]


# Modules.


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.last = torch.nn.Linear(3, 3, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


def moves() -> list[Callable[[torch.nn.Module], torch.nn.Module]]:
    return [
        lambda module: module.to("openreg"),
        lambda module: module.openreg(1),
        lambda module: module.to("openreg", torch.float64),
        lambda module: module.to("openreg").to("openreg:1"),
        lambda module: module.to("openreg").cpu(),
        # On one device this is PyTorch's rule for all, CUDA's among them.
        lambda module: module.double(),
    ]


@pytest.fixture
def overwrite() -> Iterator[None]:
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.fixture
def swap() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def identities(
    move: Callable[[torch.nn.Module], torch.nn.Module],
) -> list[bool]:
    """Which objects of a module are, after a move, those from before it."""
    model = Tied()
    model(torch.ones(1, 3)).sum().backward()
    weight, grad, mean = model.first.weight, model.first.weight.grad, model.mean
    assert move(model) is model
    return [
        model.first.weight is weight,
        model.first.weight.grad is grad,
        model.mean is mean,
        model.first.weight is model.last.weight,
    ]


@pytest.mark.proves(
    "checklist._has_compatible_shallow_copy_type", "storage.changes.module"
)
@pytest.mark.parametrize("move", moves())
def test_a_module_keeps_its_parameters_and_their_ties(move) -> None:
    assert identities(move) == [True, True, False, True]


def test_a_dense_tensor_does_not_take_the_data_of_a_sparse_one() -> None:
    dense = torch.eye(2, device="openreg")
    takes = torch._has_compatible_shallow_copy_type
    assert takes(dense, torch.eye(2))
    assert not takes(dense, torch.eye(2).to_sparse())


@pytest.mark.proves("storage.changes.overwrite")
@pytest.mark.usefixtures("overwrite")
@pytest.mark.parametrize("move", moves())
def test_a_module_told_to_overwrite_gets_new_parameters(move) -> None:
    assert identities(move) == [False, False, False, False]


@pytest.mark.proves("storage.changes.swap")
@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize("move", moves())
def test_a_module_told_to_swap_keeps_its_parameters(move) -> None:
    assert identities(move) == [True, True, False, True]


def test_an_optimizer_made_before_the_move_trains_after_it() -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to("openreg")
    before = model.first.weight.detach().clone()
    model(torch.ones(1, 3, device="openreg")).sum().backward()
    grad = model.first.weight.grad
    assert grad is not None
    optimizer.step()
    assert torch.equal(model.first.weight, before - grad)
    assert torch.equal(model.last.weight, model.first.weight)


@pytest.mark.proves("storage.changes.assign_state")
@pytest.mark.parametrize("device", ["openreg:0", "openreg:1"])
def test_assigned_state_is_the_modules_own(device: str) -> None:
    state = {
        name: value.to(device) for name, value in Tied().state_dict().items()
    }
    with torch.device("meta"):
        model = Tied()
    model.load_state_dict(state, assign=True)
    weight = model.first.weight
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.requires_grad
    assert str(weight.device) == device
    assert weight.data_ptr() == state["first.weight"].data_ptr()
    state["first.weight"].zero_()
    assert not weight.any()


@pytest.mark.proves("storage.changes.load_state")
def test_loaded_state_is_copied_across_devices() -> None:
    source, target = Tied().to("openreg:1"), Tied().to("openreg")
    weight = target.first.weight
    target.load_state_dict(source.state_dict())
    assert target.first.weight is weight
    assert torch.equal(weight.cpu(), source.first.weight.cpu())


# Copies.


def test_a_deep_copy_has_memory_of_its_own() -> None:
    x = ascending(2, 3, device="openreg:1").t()
    y = copy.deepcopy(x)
    assert (y.device, y.stride(), y.tolist()) == (
        x.device,
        x.stride(),
        x.tolist(),
    )
    y.zero_()
    assert x.sum().item() == 15


@pytest.mark.proves("storage-once", "storage.changes.deepcopy")
def test_a_deep_copy_keeps_what_shares_a_storage_together() -> None:
    x = ascending(4)
    a, b = copy.deepcopy((x, x[1:]))
    a.zero_()
    assert b.tolist() == [0, 0, 0]
    assert x.tolist() == [0, 1, 2, 3]


def test_a_deep_copy_of_a_module_keeps_its_ties() -> None:
    model = Tied().to("openreg")
    twin = copy.deepcopy(model)
    assert twin.first.weight is twin.last.weight
    assert twin.first.weight is not model.first.weight
    with torch.no_grad():
        twin.first.weight.zero_()
    assert model.first.weight.any()


def test_a_deep_copy_of_a_result_is_refused() -> None:
    x = ascending(2).requires_grad_() * 2
    refuse(lambda: copy.deepcopy(x), "Only Tensors created explicitly by the")


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, torch.UntypedStorage.clone]
)
def test_a_copied_storage_is_on_the_device(duplicate) -> None:
    storage = ascending(3, device="openreg:1").untyped_storage()
    twin = duplicate(storage)
    assert (str(twin.device), twin.nbytes()) == ("openreg:1", 12)
    assert twin.data_ptr() != storage.data_ptr()
    assert bytes(twin.cpu().tolist()) == bytes(storage.cpu().tolist())


@pytest.mark.proves("storage.changes.to")
def test_a_storage_moves_to_and_from_the_device() -> None:
    storage = torch.arange(3.0).untyped_storage()
    there = storage.to(device="openreg:1")
    assert str(there.device) == "openreg:1"
    assert there.cpu().tolist() == storage.tolist()
    assert str(there.openreg(0).device) == "openreg:0"


@pytest.mark.proves("storage.changes.pickle")
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_restores_device_strides_and_ties(protocol: int) -> None:
    x = ascending(2, 3, device="openreg:1")
    leaf = ascending(2).requires_grad_()
    a, view, again = pickle.loads(
        pickle.dumps((x, x.t(), leaf), protocol=protocol)
    )
    assert (str(a.device), a.tolist()) == ("openreg:1", x.tolist())
    assert (view.stride(), view.tolist()) == ((1, 3), x.t().tolist())
    assert (again.requires_grad, again.tolist()) == (True, [0, 1])
    a.zero_()
    assert x.sum().item() == 15
