"""The tables on the pool: complete, and the drawing is that of a run."""

import re

import pytest
import torch
from _pages import svg

import regions
from rows import rows
from tables import pool
from torch_openreg import openreg

History = list[tuple[str, list[pool.Drawn]]]


def test_every_call_of_the_pool_has_one_row() -> None:
    folder = regions.ROOT / "backend" / "csrc" / "runtime" / "pool"
    text = "\n".join(file.read_text() for file in folder.glob("*.cpp"))
    text += (folder / "block.h").read_text()
    used = set(re.findall(r"\b(or[A-Z]\w+)\(|&(or[A-Z]\w+)", text))
    names = {name for pair in used for name in pair if name}
    assert names == {row.name for row in rows("pool.calls")}


# The drawing of a segment


@pytest.fixture(scope="module")
def history() -> History:
    return pool.pool_history()


def test_the_pool_counts_these_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool's own counts, asked at the moment of each snapshot."""
    counts = []
    snapshot = openreg.memory_snapshot

    def counted() -> object:
        stats = torch.accelerator.memory_stats()
        fields = "allocated_bytes", "active_bytes", "reserved_bytes"
        counts.append([stats[f"{field}.all.current"] for field in fields])
        return snapshot()

    monkeypatch.setattr(openreg, "memory_snapshot", counted)
    history = pool.pool_history()
    before, *after = counts
    for (line, found), now in zip(history, after, strict=True):
        allocated, active, reserved = (
            (x - y) // pool.MIB for x, y in zip(now, before, strict=True)
        )
        sizes = dict.fromkeys(("waiting", "free", "live"), 0.0)
        for word, _, size in found:
            sizes[word if word in sizes else "live"] += size
        assert sizes["live"] == allocated, line
        assert sizes["waiting"] == active - allocated, line
        assert sizes["free"] == reserved - active, line


def test_the_blocks_of_a_segment_leave_no_gap(history: History) -> None:
    for line, found in history:
        ends = [block.start + block.size for block in found]
        assert [block.start for block in found] == [0, *ends][: len(found)]
        assert ends[-1:] == ([] if "empty_cache" in line else [20])


def test_the_page_tells_what_the_program_did(history: History) -> None:
    after = dict(history)
    assert pool.Drawn("z", 12, 3) in after["z = empty(3)"]
    assert pool.Drawn("w", 0, 10) in after["w = empty(10)"]
    waiting = pool.Drawn("waiting", 4, 8)
    assert [line for line, found in history if waiting in found] == [
        "y.record_stream(side); del y",
        "gate.open(); side.synchronize()",
    ]
    assert [block.word for block in after["del z, w"]] == ["free"] * 4


def test_the_drawing_is_that_of_the_blocks(history: History) -> None:
    drawing = svg(pool.pool_drawing())
    lines = [x.text for x in drawing.findall("text[@class='code']")]
    assert lines == [line for line, _ in history]
    drawn = drawing.findall("rect")
    found = [block for _, found in history for block in found]
    assert drawn.pop().get("class") == "gone"
    scale = float(drawn[0].get("width", "")) / found[0].size
    for rect, block in zip(drawn, found, strict=True):
        kind = "live" if len(block.word) == 1 else block.word
        assert rect.get("class") == kind
        assert float(rect.get("width", "")) == pytest.approx(block.size * scale)
        left = pytest.approx(4 + block.start * scale)
        assert float(rect.get("x", "")) == left
    label = drawing.get("aria-label", "")
    assert "del x: free 4 MiB, y 8 MiB, free 8 MiB;" in label
    assert pool.pool_drawing() == pool.pool_drawing()
