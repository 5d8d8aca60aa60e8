"""The table of book/reference/silent-failures.md."""

import re

import regions
import silent
from rows import mark
from tables.common import table

READS = ("book/**/*.md",)


def silent_failures() -> str:
    """Every callout: what one sees, why, where, and what proves it."""

    def row(it: silent.Failure) -> tuple[str, ...]:
        page, here = it.page.removeprefix("book"), silent.anchor(it.symptom)
        # Links of a page start from its folder.
        folder = page.rpartition("/")[0]
        cause = re.sub(r"\]\((?=[\w-]+\.md)", f"]({folder}/", it.cause)
        proof = "".join(map(mark, it.tests)) or f"[example](#{here})"
        return f"[](#{here})", cause, f"[]({page})", proof

    menu, found = regions.toctree(), silent.find(regions.read_pages())
    ordered = sorted(found, key=lambda it: menu.index(regions.docname(it.page)))
    head = "What you see", "Why", "On the page", "Proof"
    return table(head, map(row, ordered))
