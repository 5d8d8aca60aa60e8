"""What the page about the last full run shows: its numbers, and the claims."""

from typing import Any

import claims
import proof
import regions
from tables.common import table

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
        name = page.removeprefix("book/").removesuffix(".md")
        ran = shows[page]
        rows.append(
            (
                f"[{name}](/{name}.md)",
                str(len(ran) or ""),
                str(sum(filter(None, ran)) or ""),
                str(ran.count(0) or ""),
                str(ran.count(None) or ""),
                str(record["examples"][page] or ""),
                str(made.count(page) or ""),
            )
        )
    head = ("Page", "Listings", "Lines that ran", "No code", "Data")
    return (
        f"On {record['date']}, with torch {record['torch']} at "
        f"{record['commit']}, {record['tests']:,} tests and examples ran.\n\n"
        + table((*head, "Examples", "Claims"), rows)
    )


def checked_claims() -> str:
    """One row a claim: where it is made, and what proves it."""
    tests = claims.proofs()
    return table(
        ("Claim", "Test"),
        (
            (
                f"[{name}](#claim-{name})",
                " ".join(
                    f"`{test.file.rpartition('/')[2]}::{test.name}`"
                    for test in tests.get(name, [])
                ),
            )
            for name, _ in claims.find_claims(regions.read_pages())
        ),
    )
