import struct

import torch

WORD = 2**64


def mix(seed: int, place: int) -> float:
    z = (seed + (place + 1) * 0x9E3779B97F4A7C15) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return (z ^ z >> 31) / WORD


# [py-counter-solution] The state is two numbers, and a draw only adds to one.
class Generator:
    def __init__(self, seed: int = 0) -> None:
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        self.seed, self.place = seed % WORD, 0

    def draw(self, count: int) -> list[float]:
        begin, self.place = self.place, self.place + count
        return [mix(self.seed, place) for place in range(begin, self.place)]

    def get_state(self) -> torch.Tensor:
        state = struct.pack("<QQ", self.seed, self.place)
        return torch.tensor(list(state), dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        if (state.device.type, state.dtype) != ("cpu", torch.uint8):
            raise TypeError("expected a state: bytes on the CPU")
        if state.numel() != 16:
            raise ValueError(f"expected 16 bytes, got {state.numel()}")
        self.seed, self.place = struct.unpack("<QQ", bytes(state.tolist()))


# [/py-counter-solution]

# expect: ok
