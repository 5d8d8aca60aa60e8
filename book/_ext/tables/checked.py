"""What the page about the last full run shows: its numbers, and the claims."""

from typing import Any

import claims
import proof
import regions
from tables.common import code, table

READS = ("*", "backend/**", "book/**", "build/proof/proof.json")

UNRUN = (
    "This tree has not been tested in full yet: `nox -s tests`, without "
    "anything after it, runs everything and writes the numbers; "
    "then `nox -s docs` prints them here."
)


def checked_pages() -> str:
    return pages_of_record(proof.read_record())


def pages_of_record(record: dict[str, Any] | None) -> str:
    """One row a page: what of it ran, in the last full run."""
    if record is None:
        return UNRUN
    pages = regions.read_pages()
    shows: dict[str, list[int | None]] = {page: [] for page in pages}
    for region, page in regions.pages_of(pages).items():
        shows[page].append(record["regions"][region])
    made = [where.rpartition(":")[0] for _, where in claims.find_claims(pages)]
    rows = []
    for page in sorted(pages):
        name = regions.docname(page)
        ran = shows[page]
        lines = sum(filter(None, ran)), ran.count(0), ran.count(None)
        counts = len(ran), *lines, record["examples"][page], made.count(page)
        rows.append([f"[{name}](/{name}.md)", *(str(n or "") for n in counts)])
    head = ("Page", "Listings", "Lines that ran", "No code", "Data")
    return (
        f"On {record['date']}, with torch {record['torch']} at "
        f"{record['commit']}, {record['tests']:,} tests and examples ran.\n\n"
        + table((*head, "Examples", "Claims"), rows)
    )


def checked_claims() -> str:
    """One row a claim: where it is made, and what proves it."""
    tests = claims.proofs()

    def row(name: str) -> tuple[str, str]:
        by = (str(test).rpartition("/")[2] for test in tests.get(name, []))
        return f"[{name}](#claim-{name})", code(by)

    made = claims.find_claims(regions.read_pages())
    return table(("Claim", "Test"), (row(name) for name, _ in made))
