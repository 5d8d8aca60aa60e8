"""The tables of book/chapters/pool.md."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from rows import load
from tables.common import drawing
from torch_openreg import openreg
from torch_openreg.openreg.testing import Gate

MIB = 1 << 20
BLOCK_STATES = {"active_pending_free": "waiting", "inactive": "free"}


class Drawn(NamedTuple):
    """A block of a snapshot, with places and sizes in MiB."""

    word: str  # the tensor that holds it, or its state
    start: float  # from the first byte of its segment
    size: float


def blocks(segment: dict[str, Any], names: dict[str, Any]) -> Iterator[Drawn]:
    tensors = {
        value.data_ptr(): name
        for name, value in names.items()
        if isinstance(value, torch.Tensor)
    }
    for block in segment["blocks"]:
        yield Drawn(
            BLOCK_STATES.get(block["state"]) or tensors[block["address"]],
            (block["address"] - segment["address"]) / MIB,
            block["size"] / MIB,
        )


def pool_history() -> list[tuple[str, list[Drawn]]]:
    """Each line of the program, and the blocks of its stream after it."""

    def empty(mib: int) -> torch.Tensor:
        return torch.empty(mib * MIB, dtype=torch.uint8, device="openreg")

    side, gate = openreg.Stream(), Gate()
    names = {"torch": torch, "empty": empty, "side": side, "gate": gate}
    openreg.empty_cache()
    gate.hold(side)
    others = {x["address"] for x in openreg.memory_snapshot()}
    history = []
    # A stream's blocks are its own, so what is there already does not count.
    with openreg.stream(openreg.Stream()):
        for line in load("pool")["program"].splitlines():
            exec(line, names)
            found = [
                block
                for segment in openreg.memory_snapshot()
                if segment["address"] not in others
                for block in blocks(segment, names)
            ]
            history.append((line, found))
    return history


def pool_drawing() -> str:
    """The segment of the program above after each line, addresses to right."""
    history, text, label = pool_history(), [], []
    end = int(max(x.start + x.size for _, found in history for x in found))
    scale = 352 / end
    for row, (line, found) in enumerate(history):
        y = 50 * row
        text.append(f'<text class="code" x="4" y="{y + 15}">{line}</text>')
        for word, start, size in found or [Drawn("no segment", 0, end)]:
            x, width = 4 + start * scale, size * scale
            kind = word if word in BLOCK_STATES.values() else "live"
            text.append(
                f'<rect class="{kind if found else "gone"}" x="{x:g}" '
                f'y="{y + 21}" width="{width:g}" height="24"/><text '
                f'class="mid" x="{x + width / 2:g}" y="{y + 38}">{word}</text>'
            )
        words = ", ".join(f"{x.word} {x.size:g} MiB" for x in found)
        label.append(f"{line}: {words or 'no segment'}")
    y = 50 * len(history)
    for mib in range(0, end + 1, 4):
        x = 4 + mib * scale
        text.append(
            f'<path d="M{x:g} {y}v6"/>'
            f'<text class="mid" x="{x:g}" y="{y + 20}">{mib}</text>'
        )
    text.append(f'<text x="4" y="{y + 38}">MiB from the first byte</text>')
    said = "The blocks of a segment, line by line. " + "; ".join(label)
    return drawing(f"{said}.", y + 42, text)
