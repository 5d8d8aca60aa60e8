"""Claims and the tests that prove them, checked both ways."""

from pathlib import Path

import pytest
from _pages import samples

import claims

PAGE = "book/chapters/stream.md"
FILE = "backend/tests/test_stream.py"
MADE = "Work runs in order. {claim}`stream-order`\n"
PROOF = """
@pytest.mark.proves("stream-order")
@pytest.mark.parametrize("x", [1])
def test_order(x): ...
"""
SAMPLES = samples("claims")
WRONG, WRONG_ROWS = SAMPLES["wrong"], SAMPLES["wrong_rows"]


@pytest.mark.parametrize("message", WRONG)
def test_a_broken_claim_is_named_with_its_place(message: str) -> None:
    page, test = (
        text.format(MADE=MADE, PROOF=PROOF) for text in WRONG[message]
    )
    wrong = list(claims.check({PAGE: page}, {FILE: test}, {}))
    assert any(message in w for w in wrong), wrong
    assert all(w.startswith((PAGE, FILE)) for w in wrong)


@pytest.mark.parametrize("name", ["order", "Stream-order", "stream_order", ""])
def test_a_claim_has_words_with_hyphens(name: str) -> None:
    page, test = (text.replace("stream-order", name) for text in (MADE, PROOF))
    (wrong,) = claims.check({PAGE: page}, {FILE: test}, {})
    assert "named in words-with-hyphens" in wrong


@pytest.mark.parametrize("folder", ["backend/tests", "book/tests"])
def test_marks_are_looked_for_in(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "test_x.py").write_text(PROOF)
    read = claims.read_tests(tmp_path)
    assert list(claims.find_tests(read)) == ["stream-order"]


def test_a_claim_with_a_test_is_right() -> None:
    assert not list(claims.check({PAGE: MADE}, {FILE: PROOF}, {}))


def test_a_fence_or_a_quotation_makes_no_claim() -> None:
    quoted = "Write `` {claim}`stream-order` ``.\n"
    fenced = f"````md\n{MADE}````\n"
    assert not list(claims.find_claims({PAGE: quoted + fenced}))


def test_tests_are_found_in_classes_and_with_several_claims() -> None:
    text = """
class TestOrder:
    @pytest.mark.proves("a-b", "c-d")
    def test_it(self): ...
"""
    test = claims.Test(FILE, "TestOrder::test_it", 4)
    assert claims.find_tests({FILE: text}) == {"a-b": [test], "c-d": [test]}
    assert str(test) == f"{FILE}::TestOrder::test_it"


ROWS = {"x.one": True, "x.two": True, "y.three": False}


@pytest.mark.parametrize("message", WRONG_ROWS)
def test_rows_and_their_tests_agree_both_ways(message: str) -> None:
    for names in WRONG_ROWS[message]:
        test = PROOF.replace('"stream-order"', names)
        wrong = list(claims.check({}, {FILE: test}, ROWS))
        assert len(wrong) == bool(message), (names, wrong)
        assert all(message in sentence for sentence in wrong)
