"""A data set that a package ships, trained on as a user would."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import _examples

Prefetch = _examples.load("prefetch").Prefetch


def train(device: str) -> float:
    """How many of the digits that were kept apart are told right."""
    torch.manual_seed(0)
    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float()[:, None] / 16
    data = TensorDataset(x, torch.from_numpy(bunch.target).long())
    train, test = random_split(data, [1500, 297])
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    there = device != "cpu"
    loader = DataLoader(
        train, 50, shuffle=True, num_workers=2, pin_memory=there
    )
    for _ in range(8):
        for images, labels in Prefetch(loader) if there else loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    images, labels = (part.to(device) for part in test[:])
    return (model(images).argmax(1) == labels).float().mean().item()


@pytest.mark.parametrize("device", ["cpu", "openreg"])
def test_a_network_learns_to_read_digits(device, keep):
    right = train(device)
    assert right > 0.95
    keep("digits", "scikit-learn", device=device, right=f"{right:.1%}")
