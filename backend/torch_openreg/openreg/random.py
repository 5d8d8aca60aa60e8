"""Random numbers: each device draws from a generator of its own.

A device's generator is of the CPU's kind, so equal seeds give equal numbers on
both. Drawing on a device never moves the CPU's generator.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.types import Device

from torch_openreg import _C
from torch_openreg.openreg._lazy import _lazy_init, _seed_device, device_count
from torch_openreg.openreg._utils import _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device: Device = None) -> torch.Generator:
    """The default generator of `device`, which initializes the backend."""
    index = _get_device_index(device, optional=True)
    _lazy_init()
    return _C._get_default_generator(index)


# [py-random-manual-seed] Before initialization, a seed is kept for later.
def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device.

    Args:
        seed: As for `torch.manual_seed`; negative values count from 2**64.
    """
    _seed_device(_C._get_device(), int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices, as `torch.manual_seed` does.

    Args:
        seed: As for `torch.manual_seed`; negative values count from 2**64.
    """
    for device in range(device_count()):
        _seed_device(device, int(seed))


# [/py-random-manual-seed]


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    _generator().seed()


def seed_all() -> None:
    """Seeds all devices' generators with one random number."""
    manual_seed_all(_generator(0).seed())


def initial_seed() -> int:
    """Returns the seed of the current device's generator."""
    return _generator().initial_seed()


def get_rng_state(device: Device = "openreg") -> torch.Tensor:
    """Returns the state of a device's generator as bytes on the CPU.

    Args:
        device: The device; without an index, the current one.
    """
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Returns the states of all devices' generators, in order."""
    return [get_rng_state(device) for device in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "openreg") -> None:
    """Gives a device's generator a state that `get_rng_state` returned.

    Args:
        new_state: The state, a uint8 tensor on the CPU.
        device: The device; without an index, the current one.

    Raises:
        TypeError: `new_state` is not such a tensor.
        RuntimeError: `new_state` has the wrong size.
    """
    _generator(device).set_state(new_state)


# [py-random-all] Sets the states of all devices, or of none.
def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Gives all devices' generators their states, one a device, in order.

    All or none: a state that is refused leaves every generator as it was.

    Raises:
        TypeError: One is not a uint8 tensor on the CPU.
        RuntimeError: One has the wrong size.
        ValueError: There are more or fewer states than devices.
    """
    states = list(new_states)
    if len(states) != device_count():
        raise ValueError(
            f"Expected one state for each of {device_count()} devices, "
            f"but got {len(states)}."
        )
    generators = [_generator(device) for device in range(len(states))]
    for generator, state in zip(generators, states, strict=True):
        generator.clone_state().set_state(state)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)


# [/py-random-all]
