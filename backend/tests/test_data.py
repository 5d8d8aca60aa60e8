"""Loaders of data: pinned memory, a copy ahead, workers and generators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import _examples
from _rows import read
from torch_openreg.openreg.testing import Gate, trace

PREFETCH = _examples.load("prefetch").Prefetch
ROWS = {k: v for k, v in read("data").items() if k != "columns"}


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(8.0).view(8, 1))


class OnDevice(Dataset[Tensor]):
    """Samples that are made where the model is."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((2,), float(index), device="openreg")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_for_the_accelerator(workers):
    context = "fork" if workers else None
    loader = DataLoader(
        numbers(),
        4,
        pin_memory=True,
        num_workers=workers,
        multiprocessing_context=context,
    )
    batches = [batch for (batch,) in loader]
    assert [batch.is_pinned() for batch in batches] == [True, True]
    assert torch.cat(batches).flatten().tolist() == list(range(8))


def copies(loader: DataLoader[tuple[Tensor, ...]]) -> set[str]:
    with trace() as records:
        for (batch,) in loader:
            batch.to("openreg", non_blocking=True)
        torch.accelerator.synchronize()
    return {r.name for r in records if r.phase == "end" and r.kind == "copy"}


def test_a_copy_says_whether_its_batch_was_pinned():
    pageable = DataLoader(numbers(), 4)
    pinned = DataLoader(numbers(), 4, pin_memory=True)
    assert copies(pageable) == {"Memcpy HtoD (Pageable -> Device)"}
    assert copies(pinned) == {"Memcpy HtoD (Pinned -> Device)"}


@pytest.mark.queued
@pytest.mark.proves("data-prefetch")
def test_a_batch_is_copied_while_the_one_before_it_is_used():
    batches = PREFETCH(DataLoader(numbers(), 2, pin_memory=True))
    coming = iter(batches)
    busy, gate = torch.Stream("openreg"), Gate()
    with busy:
        (first,) = next(coming)
        gate.hold()
        used = first * 2  # is not done before the gate opens
        (second,) = next(coming)
    batches.stream.synchronize()
    with torch.Stream("openreg") as other:
        ahead = second.cpu()
        other.synchronize()
    assert not busy.query()
    gate.open()
    assert ahead.flatten().tolist() == [2, 3]
    busy.synchronize()
    assert used.flatten().tolist() == [0, 2]


@pytest.mark.proves("data-prefetch-whole")
def test_batches_of_a_prefetch_are_whole():
    loader = DataLoader(numbers(), 2, pin_memory=True)
    for _ in range(20):
        results = [(batch * 2).sum() for (batch,) in PREFETCH(loader)]
        assert [r.item() for r in results] == [2, 10, 18, 26]


def test_a_worker_that_was_forked_is_refused_the_device():
    torch.ones(1, device="openreg")  # as any program that trains has used it
    loader = DataLoader(
        OnDevice(), 2, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="must use the 'spawn' start method"):
        list(loader)


@pytest.mark.one_mode
def test_a_worker_that_was_spawned_may_send_tensors_of_the_device():
    loader = DataLoader(
        OnDevice(), 2, num_workers=1, multiprocessing_context="spawn"
    )
    batches = list(loader)
    assert [batch.device.type for batch in batches] == ["openreg"] * 2
    assert torch.cat(batches)[:, 0].tolist() == [0, 1, 2, 3]


def test_a_batch_that_is_on_the_device_cannot_be_pinned():
    with pytest.raises(
        RuntimeError, match="only dense CPU tensors can be pinned"
    ):
        list(DataLoader(OnDevice(), 2, pin_memory=True))


NAMES = {
    "DataLoader": DataLoader,
    "RandomSampler": RandomSampler,
    "WeightedRandomSampler": WeightedRandomSampler,
    "random_split": random_split,
    "torch": torch,
}


@pytest.mark.proves("data.*")
@pytest.mark.parametrize("name", ROWS)
def test_a_generator_is_where_the_numbers_are_drawn(name):
    row = ROWS[name]
    here, other = "cpu", "openreg"
    if row["place"] == "the device":
        here, other = other, here

    def draw(device: str) -> None:
        names = {**NAMES, "data": numbers(), "g": torch.Generator(device)}
        eval(row["draw"].strip(), names)

    draw(here)
    expected = (
        f"Expected a '{here}' device type for generator but found '{other}'"
    )
    with pytest.raises(RuntimeError, match=expected):
        draw(other)


@pytest.mark.proves("data-default-device")
def test_a_default_device_moves_the_draws_of_a_loader():
    data = numbers()
    with torch.device("openreg"):
        with pytest.raises(
            RuntimeError, match="Expected a 'openreg' device type"
        ):
            list(DataLoader(data, 4, shuffle=True))
        generator = torch.Generator("openreg")
        loader = DataLoader(data, 4, shuffle=True, generator=generator)
        batches = torch.cat([batch for (batch,) in loader])
    assert sorted(batches.flatten().tolist()) == list(range(8))
