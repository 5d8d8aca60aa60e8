"""torch.save and torch.load: every format, every map_location, either side."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from _fresh import prints
from _tensors import ascending

OBJECTS: dict[str, Callable[[], torch.Tensor]] = {
    "whole": lambda: ascending(2, 3),
    "view": lambda: ascending(4, 3)[1:].t(),
    "device 1": lambda: ascending(3, device="openreg:1"),
    "parameter": lambda: torch.nn.Parameter(ascending(3)),
    "leaf": lambda: ascending(3).requires_grad_(),
    "bfloat16": lambda: ascending(3).bfloat16(),
    "bool": lambda: ascending(3) > 1,
    "conjugate": lambda: (ascending(2) * (1 + 2j)).conj(),
    "negative": lambda: (ascending(2) * (1 + 2j)).conj().imag,
    "empty": lambda: torch.empty(0, 4, device="openreg"),
    "scalar": lambda: torch.tensor(7.0, device="openreg"),
}

# How it is stored, and how it is read.
FORMATS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zip": ({}, {}),
    "mmap": ({}, {"mmap": True}),
    "legacy": ({"_use_new_zipfile_serialization": False}, {}),
    "trusted zip": ({}, {"weights_only": False}),
    "trusted mmap": ({}, {"mmap": True, "weights_only": False}),
    "trusted legacy": (
        {"_use_new_zipfile_serialization": False},
        {"weights_only": False},
    ),
}


def alike_but_for_device(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether nothing else differs."""
    return (
        type(x) is type(y)
        and (x.dtype, x.shape, x.stride(), x.storage_offset())
        == (y.dtype, y.shape, y.stride(), y.storage_offset())
        and (x.requires_grad, x.is_conj(), x.is_neg())
        == (y.requires_grad, y.is_conj(), y.is_neg())
        and x.tolist() == y.tolist()
    )


def locations(saved: str) -> dict[str, tuple[Any, str]]:
    """A map_location of every form, and where a tensor on `saved` goes."""
    return {
        "none": (None, saved),
        "string": ("openreg:1", "openreg:1"),
        "string without index": ("openreg", "openreg:0"),
        "cpu": ("cpu", "cpu"),
        "device": (torch.device("openreg", 1), "openreg:1"),
        "device of the cpu": (torch.device("cpu"), "cpu"),
        "dict": ({saved: "openreg:1"}, "openreg:1"),
        "dict to the cpu": ({saved: "cpu"}, "cpu"),
        "dict of others": ({"cuda:0": "cpu"}, saved),
        "function that leaves it": (lambda storage, tag: storage, "cpu"),
        "function that moves it": (
            lambda storage, tag: storage.to(device="openreg:1"),
            "openreg:1",
        ),
        "function without an answer": (lambda storage, tag: None, saved),
    }


LOCATIONS = list(locations(""))


@pytest.mark.proves("checklist.serialization")
@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("way", FORMATS)
def test_every_format_meets_every_map_location(
    way: str, location: str, tmp_path: Path
) -> None:
    save, load = FORMATS[way]
    for name, make in OBJECTS.items():
        x = make()
        file = tmp_path / "x.pt"
        torch.save(x, file, **save)
        where, expected = locations(str(x.device))[location]
        y = torch.load(file, map_location=where, **load)
        assert str(y.device) == expected, name
        assert alike_but_for_device(x, y), name
        with torch.no_grad():
            y.zero_()
        assert str(x.device).startswith("openreg")
        assert alike_but_for_device(x, make()), name


def test_a_function_is_told_the_storages_tag() -> None:
    file = io.BytesIO()
    torch.save(
        [ascending(2), ascending(2, device="openreg:1"), torch.ones(1)], file
    )
    file.seek(0)
    tags = []

    def where(storage: torch.UntypedStorage, tag: str) -> torch.UntypedStorage:
        tags.append((str(storage.device), tag))
        return storage

    torch.load(file, map_location=where)
    assert tags == [
        ("cpu", "openreg:0"),
        ("cpu", "openreg:1"),
        ("cpu", "cpu"),
    ]


def test_a_tag_says_the_device_of_the_storage() -> None:
    tag = torch.serialization.location_tag
    assert tag(ascending(2).untyped_storage()) == "openreg:0"
    assert (
        tag(ascending(2, device="openreg:1").untyped_storage()) == "openreg:1"
    )
    assert tag(torch.ones(1).untyped_storage()) == "cpu"


def round_trip(x: Any, **load: Any) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **load)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        RuntimeError,
        match=r"Attempting to deserialize object on OPENREG device 7 but "
        r"torch.openreg.device_count\(\) is 2. Please use torch.load with "
        "map_location to map your storages to an existing device.",
    ):
        round_trip(ascending(2), map_location="openreg:7")
    assert round_trip(ascending(2)).tolist() == [0, 1]


def test_the_current_device_takes_what_names_no_index() -> None:
    with torch.openreg.device(1):
        x = round_trip(ascending(2), map_location="openreg")
    assert str(x.device) == "openreg:1"


@pytest.mark.proves("storage-once")
def test_tensors_of_one_storage_stay_together() -> None:
    x = ascending(4)
    for location in (None, "cpu", "openreg:1"):
        a, b = round_trip([x[:3], x[2:]], map_location=location)
        a.zero_()
        assert b.tolist() == [0, 3]
    assert x.tolist() == [0, 1, 2, 3]


def test_a_checkpoint_restores_model_and_optimizer() -> None:
    def make(device: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        ).to(device)
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
        device = next(model.parameters()).device
        x = torch.linspace(-1, 1, 12).view(3, 4).to(device)
        loss = model(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    for here, there in itertools.permutations(
        ("cpu", "openreg:0", "openreg:1"), 2
    ):
        model, optimizer = make(here)
        step(model, optimizer)
        state = round_trip(
            [model.state_dict(), optimizer.state_dict()], map_location=there
        )
        twin, its = make(there)
        twin.load_state_dict(state[0])
        its.load_state_dict(state[1])
        for _ in range(3):
            assert step(model, optimizer) == pytest.approx(
                step(twin, its), rel=1e-5
            )


def test_data_is_skipped_and_filled_in() -> None:
    with torch.serialization.skip_data():
        y = round_trip(ascending(2, 2))
    assert (y.shape, str(y.device)) == ((2, 2), "openreg:0")


def test_a_default_mmap_reads_into_the_device(tmp_path: Path) -> None:
    torch.save(ascending(5), tmp_path / "x.pt")
    with torch.serialization.set_default_mmap_options(2):
        y = torch.load(tmp_path / "x.pt", mmap=True)
    y.add_(1)
    assert y.tolist() == [1, 2, 3, 4, 5]
    assert torch.load(tmp_path / "x.pt").tolist() == [0, 1, 2, 3, 4]


WITHOUT = """
import sys, torch
torch.save(torch.arange(3.0), sys.argv[2])
try:
    torch.load(sys.argv[1])
except RuntimeError as error:
    print(str(error))
state = torch.load(sys.argv[1], map_location="cpu")
print(state["weight"].tolist(), state["bias"].device)
for where in ({"openreg:0": "cpu"}, lambda storage, tag: storage):
    state = torch.load(sys.argv[1], map_location=where, weights_only=False)
    print(state["bias"].tolist())
state = torch.load(sys.argv[1], map_location="cpu", mmap=True)
print(state["weight"].stride(), hasattr(torch, "openreg"))
"""


@pytest.mark.one_mode
@pytest.mark.proves("storage-checkpoint-elsewhere")
def test_checkpoints_cross_to_where_the_backend_is_missing(
    tmp_path: Path,
) -> None:
    ours, theirs = tmp_path / "ours.pt", tmp_path / "theirs.pt"
    weight = torch.nn.Parameter(ascending(2, 2).t())
    torch.save({"weight": weight, "bias": ascending(2)}, ours)
    out = prints(
        WITHOUT, str(ours), str(theirs), TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    error, *lines = out.splitlines()
    assert error == (
        "don't know how to restore data location of "
        "torch.storage.UntypedStorage (tagged with openreg:0)"
    )
    assert lines == [
        "[[0.0, 2.0], [1.0, 3.0]] cpu",
        "[0.0, 1.0]",
        "[0.0, 1.0]",
        "(1, 2) False",
    ]
    assert torch.load(theirs, map_location="openreg:1").tolist() == [0, 1, 2]


def test_weights_only_needs_nothing_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    torch.save({"x": ascending(2), "p": torch.nn.Parameter(ascending(2))}, file)
    unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    assert unsafe == []
