"""An exercise of the chapter Random numbers: a generator that counts.

The number at a place is a function of the seed and the place alone, so the
state is small: the seed, and the place of the next number. This generator
never moves on, and has no state to save.

    nox -s tests -- backend/tests/judge.py -k counter
"""

import torch

WORD = 2**64


def mix(seed: int, place: int) -> float:
    """The number at `place`, in [0, 1): SplitMix64."""
    z = (seed + (place + 1) * 0x9E3779B97F4A7C15) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return (z ^ z >> 31) / WORD


class Generator:
    def __init__(self, seed: int = 0) -> None:
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        """Begins again, at place 0."""
        self.seed, self.place = seed % WORD, 0

    def draw(self, count: int) -> list[float]:
        """The next numbers."""
        return [mix(self.seed, self.place + i) for i in range(count)]

    def get_state(self) -> torch.Tensor:
        """All that decides what is drawn next, as bytes on the CPU."""
        raise NotImplementedError

    def set_state(self, state: torch.Tensor) -> None:
        """Goes on where `state` was taken; what is no state is refused."""
        raise NotImplementedError


# expect: ok
