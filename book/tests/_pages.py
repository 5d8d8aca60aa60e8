"""Pages that are no part of the book run as its own; drawings taken apart.

The texts of samples stand in files.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sybil import Document

import conftest

SAMPLES = Path(__file__).parent / "samples"


def text_of(file: str) -> str:
    return (SAMPLES / file).read_text("utf-8")


def samples(name: str) -> dict[str, Any]:
    """What a test is made from: texts, which read as they are."""
    return tomllib.loads(text_of(f"{name}.toml"))


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
