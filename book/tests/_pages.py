"""Pages that are no part of the book, run as its own are."""

from __future__ import annotations

from collections.abc import Iterator

from sybil import Document

import conftest


def failures(page: str, text: str) -> Iterator[AssertionError]:
    """Runs every example of a page, also after one that fails."""
    document = Document(text, page)
    conftest.begin_page(document.namespace)
    for region in conftest.collect(document):
        document.add(region)
    for example in document.examples():
        try:
            example.evaluate()
        except AssertionError as failure:
            yield failure
    conftest.end_page(document.namespace)
