"""Facts about a tensor that PyTorch does not know: four places to keep one."""

from __future__ import annotations

import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing import reductions

import _rows
from _extension import load
from _fresh import prints
from _tensors import ascending

SURVIVALS = _rows.read("storage")["survivals"]
PLACES = "BackendMeta", "StorageImpl", "TensorImpl", "subclass"


@pytest.fixture(scope="module", autouse=True)
def library() -> str:
    return load()


class Tiled(torch.Tensor):
    """The fact is the type. copy.deepcopy asks for `new_empty`."""

    def new_empty(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super().new_empty(*args, **kwargs).as_subclass(type(self))


def new() -> torch.Tensor:
    return torch.empty(0, device="openreg")


def assign_data(x: torch.Tensor) -> torch.Tensor:
    y = new()
    y.data = x
    return y


def moved(x: torch.Tensor) -> torch.Tensor:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(x)
    weight: torch.Tensor = module.to("openreg:1").get_parameter("weight")
    return weight


def loaded(x: Any, location: str | None = None) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    with torch.serialization.safe_globals([Tiled]):
        return torch.load(file, map_location=location)


def sent(x: torch.Tensor) -> torch.Tensor:
    """Through multiprocessing's pickle, here opened by the same process."""
    message = ForkingPickler.dumps(x)
    reductions.shared_cache.clear()  # which would answer with x's own storage
    return pickle.loads(message)


def make_meta() -> torch.Tensor:
    return torch.ops.custom_tensor.tile(ascending(4, 4))


def make_storage() -> torch.Tensor:
    # PyTorch's generic `empty` makes plain storages; this asks for ours.
    storage = torch.UntypedStorage(64, device="openreg")
    x = new().set_(storage, 0, (4, 4)).zero_()
    torch.ops.custom_tensor.mark_storage(x)
    return x


MAKE = {
    "BackendMeta": make_meta,
    "StorageImpl": make_storage,
    "TensorImpl": lambda: torch.ops.custom_tensor.wrap(ascending(4, 4)),
    "subclass": lambda: ascending(4, 4).as_subclass(Tiled),
}
ASK = {
    "BackendMeta": lambda x: torch.ops.custom_tensor.is_tiled(x),
    "StorageImpl": lambda x: torch.ops.custom_tensor.is_storage_marked(x),
    "TensorImpl": lambda x: torch.ops.custom_tensor.is_wrapped(x),
    "subclass": lambda x: isinstance(x, Tiled),
}


def survives(place: str) -> list[str]:
    """What each row says of a place, as it really is."""
    found = []
    for row in SURVIVALS:
        x = MAKE[place]()
        assert ASK[place](x)
        assert not ASK[place](ascending(4, 4))
        values = x.clone().cpu()
        y = eval(row["code"], globals(), {"x": x})
        found.append("kept" if ASK[place](y) else "-")
        if "1" not in row["code"].replace("openreg:1", ""):
            expected = values.t() if row["code"] == "x.t()" else values
            assert y.tolist() == expected.tolist(), row
    return found


def column(place: str) -> list[str]:
    index = PLACES.index(place)
    return [row["kept"][index] for row in SURVIVALS]


@pytest.mark.parametrize("place", ["BackendMeta", "TensorImpl", "subclass"])
def test_a_fact_survives_what_its_column_says(place: str) -> None:
    assert survives(place) == column(place)


@pytest.mark.one_mode
def test_a_fact_in_a_storage_survives_what_its_column_says(
    library: str,
) -> None:
    # A process of its own: what use_storage registers, nothing takes back.
    out = prints(
        """
        import os, sys
        sys.path[:0] = sys.argv[2:]
        import torch
        torch.ops.load_library(sys.argv[1])
        torch.ops.custom_tensor.use_storage()
        from test_custom_tensor import survives
        print(*survives("StorageImpl"))
        try:
            torch.ops.custom_tensor.use_storage()
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        """,
        library,
        str(Path(__file__).parent),
    )
    found, again = out.splitlines()
    assert found.split() == column("StorageImpl")
    assert again == (
        "The StorageImplCreate function pointer for openreg has been "
        "registered."
    )


def test_tiling_is_undone_after_a_checkpoint() -> None:
    tile, untile = (
        torch.ops.custom_tensor.tile,
        torch.ops.custom_tensor.untile,
    )
    x = ascending(4, 6)
    assert tile(x)[0].tolist() == [0, 1, 6, 7, 2, 3]
    assert torch.equal(untile(tile(x)), x)
    for where in (None, "openreg:1"):
        assert untile(loaded(tile(x), where)).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="a matrix with even sides"):
        tile(ascending(3, 4))


def test_the_fact_is_in_the_checkpoint_and_harms_nobody() -> None:
    tiled = make_meta()
    assert torch._C._get_tensor_metadata(tiled) == {"tiled": True}
    assert torch._C._get_tensor_metadata(ascending(2)) == {}
    assert torch._C._get_tensor_metadata(torch.ones(1)) == {}
    assert torch.equal(loaded(tiled, "cpu"), tiled.cpu())


def test_a_tensorimpl_of_ours_computes_and_trains() -> None:
    x = torch.ops.custom_tensor.wrap(ascending(2, 2)).requires_grad_()
    y = (x * x).sum()
    y.backward()
    assert y.item() == 14
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 2], [4, 6]]
    detached = x.detach()
    detached.add_(1)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert x._version == detached._version


def test_a_wrapped_tensor_shares_the_memory() -> None:
    x = ascending(2, 3)
    wrapped = torch.ops.custom_tensor.wrap(x.t())
    wrapped.zero_()
    assert not x.any()
    assert wrapped.stride() == (1, 3)


class Scaled(torch.Tensor):
    """A subclass without a storage: a tensor on the device and a factor."""

    held: torch.Tensor
    factor: float

    @staticmethod
    def __new__(cls, inner: torch.Tensor, factor: float) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: torch.Tensor, factor: float) -> None:
        self.held, self.factor = inner, factor

    def __tensor_flatten__(self) -> tuple[list[str], float]:
        return ["held"], self.factor

    @staticmethod
    def __tensor_unflatten__(tensors, factor, *_) -> Scaled:
        return Scaled(tensors["held"], factor)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kept = {"view", "t", "clone", "detach", "_to_copy", "alias"}
        name = function._schema.name.removeprefix("aten::")
        if name in kept:
            (self, *rest) = args
            inner = function(self.held, *rest, **(kwargs or {}))
            return cls(inner, self.factor)
        plain = [a.held * a.factor if isinstance(a, cls) else a for a in args]
        return function(*plain, **(kwargs or {}))


KEPT = {
    "view": (lambda x: x.view(2, 2), "openreg:0"),
    "transpose": (lambda x: x.view(2, 2).t(), "openreg:0"),
    "clone": (torch.clone, "openreg:0"),
    "detach": (torch.detach, "openreg:0"),
    "device": (lambda x: x.to("openreg:1"), "openreg:1"),
    "cpu": (lambda x: x.cpu(), "cpu"),
    "deepcopy": (copy.deepcopy, "openreg:0"),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), "openreg:0"),
    "save": (loaded, "openreg:0"),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_wrapper_subclass_lives_on_the_device(name: str) -> None:
    change, device = KEPT[name]
    x = Scaled(ascending(4), 0.5)
    assert (x + 1).tolist() == [1, 1.5, 2, 2.5]
    with torch.serialization.safe_globals([Scaled]):
        y = change(x)
    assert isinstance(y, Scaled)
    assert (str(y.device), str(y.held.device)) == (device, device)
    expected = y.held.cpu() * 0.5
    assert (y * 1).tolist() == expected.tolist()
    assert sorted(expected.flatten().tolist()) == [0, 0.5, 1, 1.5]


def test_a_subclass_without_new_empty_is_not_deep_copied() -> None:
    x: Any = ascending(2).as_subclass(type("Plain", (torch.Tensor,), {}))
    with pytest.raises(RuntimeError, match="types that implement new_empty"):
        copy.deepcopy(x)
    assert type(x.clone()).__name__ == "Plain"


def test_a_subclass_needs_a_word_to_be_loaded() -> None:
    file = io.BytesIO()
    torch.save(ascending(2).as_subclass(Tiled), file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):
        torch.load(file)
    file.seek(0)
    x = torch.load(file, weights_only=False)
    assert (type(x), x.tolist()) == (Tiled, [0, 1])
