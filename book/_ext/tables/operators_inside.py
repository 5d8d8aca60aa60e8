"""The tables of book/chapters/operators-inside.md."""

from torch import _C

from regions import ROOT
from rows import rows
from tables.common import of_rows
from tables.dispatcher import REFUSED, is_boxed, with_choice

READS = ("backend/csrc/aten/**", "book/rows/stubs.toml")

ATEN = ROOT / "backend" / "csrc" / "aten"


def lines_of(files: list[str]) -> int:
    texts = [(ATEN / file).read_text("utf-8") for file in files]
    return sum(len(text.splitlines()) for text in texts)


def tier_operators() -> dict[str, set[str]]:
    """Tier -> the operators of ATen that it serves, on dense tensors."""
    served = {
        f"aten::{n}" for row in rows("stubs.served") for n in row.operators
    }
    found: dict[str, set[str]] = {"a": set(), "b": set(), "c": set()}
    for name in _C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
        if name.startswith("aten::") and not name.startswith(REFUSED):
            if is_boxed(name, "PrivateUse1"):
                found["c"].add(name)
            else:
                found["a" if name in served else "b"].add(name)
    found["d"] = with_choice("PrivateUse1", "backend fallback") & with_choice(
        "CPU", "kernel"
    )
    return found


def tiers() -> str:
    """What each way to a kernel costs in lines, and how many it serves."""
    served = tier_operators()
    return of_rows(
        "operators_inside.tiers",
        lines=lambda row: str(lines_of(row.files)),
        operators=lambda row: row.letter and str(len(served[row.letter])),
    )
