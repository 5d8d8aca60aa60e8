"""The tables of book/chapters/stubs.md."""

from rows import FOLDER
from tables.common import code, table

READS = ("book/rows/stubs.txt",)


def listed_stubs() -> dict[str, list[str]]:
    """Header -> the stubs that it declares and PyTorch's library exports."""
    lines = (FOLDER / "stubs.txt").read_text("utf-8").splitlines()
    return {
        header: names.split()
        for header, _, names in (line.partition(": ") for line in lines)
    }


def stub_list() -> str:
    """Every stub that a backend can register, by the header it needs."""
    body = (
        (code([x.removeprefix("ATen/native/")]), str(len(names)), code(names))
        for x, names in sorted(listed_stubs().items())
    )
    return table(("Header, below `ATen/native`", "Number", "Stubs"), body)
