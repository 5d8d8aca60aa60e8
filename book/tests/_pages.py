"""Pages that are no part of the book run as its own; drawings taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

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


def svg(markdown: str) -> ElementTree.Element:
    """What a `{generated}` drawing consists of."""
    root = ElementTree.fromstring(re.findall("<svg.*</svg>", markdown)[0])
    assert root.get("role") == "img"
    return root
