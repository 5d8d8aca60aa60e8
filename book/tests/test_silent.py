"""Each callout of a silent failure has all its parts."""

from collections.abc import Iterator, Mapping

import pytest
from _pages import samples

import claims
import regions
import silent

PAGES = regions.read_pages()
SAMPLES = samples("silent")
RUN = ("python", "console", "output")


def lacking(pages: Mapping[str, str]) -> Iterator[str]:
    """What is missing, with the symptom of the callout."""
    found = list(silent.find(pages))
    for failure in found:
        fences = regions.find_fences(failure.page, pages[failure.page])
        runs = "".join(fence.body for fence in fences if fence.kind in RUN)
        parts = {
            "a symptom": failure.symptom,
            "a cause": failure.cause,
            "a proof": failure.tests or failure.shown,
            "a test": claims.proofs().keys() >= set(failure.tests),
            "an example": failure.shown in runs,
            "a name": [x.symptom for x in found].count(failure.symptom) == 1,
        }
        for what, there in parts.items():
            if not there:
                yield f"{failure.symptom} lacks {what}"


def test_every_callout_is_whole() -> None:
    assert list(lacking(PAGES)) == []
    assert len(list(silent.find(PAGES))) >= 25


@pytest.mark.parametrize("what", SAMPLES)
def test_a_part_that_lacks_is_named(what: str) -> None:
    symptom, text = SAMPLES[what]
    wrong = list(lacking({"book/chapters/x.md": text}))
    assert set(wrong) == {f"{symptom} lacks {what}"}
