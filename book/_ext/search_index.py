"""The index of words that a search loads, in fewer characters.

A line is a word and the numbers of its pages. The word lacks the start that it
has in common with the one before; `unpack` of _static/search.js undoes this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from posixpath import commonprefix
from typing import IO, Any

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

BEFORE, AFTER = "Search.setIndex(unpackIndex(", "))"
ZERO = 48  # the character that stands for the number 0


def pack(terms: Mapping[str, int | list[int]]) -> str:
    lines, last = [], ""
    for word in sorted(terms):
        same = len(commonprefix([last, word]))
        pages = terms[word]
        numbers = pages if isinstance(pages, list) else [pages]
        letters = "".join(chr(ZERO + number) for number in numbers)
        lines.append(f"{chr(ZERO + same)}{word[same:]} {letters}")
        last = word
    return "\n".join(lines)


def unpack(text: str) -> dict[str, list[int]]:
    terms: dict[str, list[int]] = {}
    word = ""
    for line in text.split("\n"):
        rest, letters = line.split(" ")
        word = word[: ord(rest[0]) - ZERO] + rest[1:]
        terms[word] = [ord(letter) - ZERO for letter in letters]
    return terms


class Packed:
    """As Sphinx writes the index, and reads it before the next print."""

    @staticmethod
    def dump(data: dict[str, Any], file: IO[str]) -> None:
        small = {**data, "terms": pack(data["terms"])}
        text = json.dumps(small, separators=(",", ":"), sort_keys=True)
        file.write(f"{BEFORE}{text}{AFTER}")

    @staticmethod
    def load(file: IO[str]) -> dict[str, Any]:
        text = file.read()
        if not text.startswith(BEFORE):
            raise ValueError("another program has written the index")
        data = json.loads(text.removeprefix(BEFORE).removesuffix(AFTER))
        return {**data, "terms": unpack(data["terms"])}


def setup(app: Sphinx) -> dict[str, Any]:
    StandaloneHTMLBuilder.indexer_format = Packed
    return {"parallel_read_safe": True, "version": "1"}
