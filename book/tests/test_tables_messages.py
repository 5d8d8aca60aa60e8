"""Every message in the sources is told of on the errors page, and met."""

import re
from pathlib import Path

import pytest
from _pages import samples

import claims
from rows import Row, rows
from tables import messages

ROOT = Path(__file__).parents[2]
MESSAGES = messages.found()


def test_the_scanner_reads_calls_of_every_kind() -> None:
    sample = samples("messages")
    found = [
        message.text for message in messages.in_cpp("a.cpp", sample["cpp"])
    ]
    assert found == sample["found_in_cpp"]
    found = [
        message.text for message in messages.in_python("a.py", sample["python"])
    ]
    assert found == sample["found_in_python"]


def test_no_call_that_raises_is_overlooked() -> None:
    # Counted without the scanner: what begins a message in each language.
    sources = [
        path.read_text()
        for folder in ("torch_openreg", "csrc", "device")
        for path in (ROOT / "backend" / folder).rglob("*.*")
        if path.suffix in (".cpp", ".h", ".py")
    ]
    begins = re.compile(
        r"TORCH_(?:CHECK|WARN)\w*\(|c10::AcceleratorError\(\n|^ *raise \w+\("
        r"|\bfail\(\n? *orError|torch\._check\(|^ *refuse\(|warnings\.warn\(",
        re.M,
    )
    count = sum(len(begins.findall(source)) for source in sources)
    sentences = [m for m in MESSAGES if "kernel … on" not in m.text]
    # Four hand on a sentence that is made elsewhere, two are `fail` itself.
    assert count == len(sentences) + 6


def test_every_word_of_a_message_is_as_recorded(
    pytestconfig: pytest.Config,
) -> None:
    # A test that meets a message asks for a part of it, such as its numbers.
    known = ROOT / "backend" / "tests" / "messages_known.txt"
    texts = sorted(" ".join(message.text.split()) for message in MESSAGES)
    recorded = known.read_text("utf-8").splitlines()
    if pytestconfig.getoption("accept"):
        known.write_text("\n".join(texts) + "\n", "utf-8")
    assert texts == recorded, "`nox -s accept` records the messages anew."


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.text[:60])
def test_the_page_tells_of_every_message_once(message: messages.Found) -> None:
    told = [row.id for row in messages.told(message)]
    assert len(told) == 1, (
        f"{message.file}:{message.line} says {message.text!r}, of which "
        f"{len(told)} rows of book/rows/messages.toml tell: {told}"
    )


def unbroken(text: str) -> str:
    """A source with its literals joined, as far as this can be seen."""
    text = re.sub(r'"\s*\n\s*[rf]*"', "", text)
    return re.sub(r"\s+", " ", re.sub(r"\\(.)", r"\1", text))


def sources_of(row: Row) -> list[Path]:
    """The page that shows a message, or the tests that meet it."""
    if row.shown:
        return [ROOT / "book" / row.shown]
    return [ROOT / test.file for test in claims.proofs()[row.id]]


@pytest.mark.parametrize("row", messages.TOLD, ids=lambda row: row.key)
def test_a_row_is_of_a_message_that_its_test_meets(row: Row) -> None:
    assert any(row.says in message.text for message in MESSAGES)
    if not row.untested:
        texts = [unbroken(path.read_text()) for path in sources_of(row)]
        assert any(row.says in text for text in texts)


@pytest.mark.parametrize("row", rows("fallback.refusals"), ids=lambda r: r.key)
def test_a_refusal_of_the_fallback_is_in_the_words_of_its_test(
    row: Row,
) -> None:
    (test,) = claims.proofs()[row.id]
    assert row.says in unbroken((ROOT / test.file).read_text())


def test_the_pages_messages_are_those_of_their_examples() -> None:
    shown = messages.on_pages()
    assert "TypeError: RNG state must be a torch.ByteTensor" in shown
    assert len(shown) > 40
    assert all(pages for pages in shown.values())
    ours = [m for m in shown if any(row.says in m for row in messages.TOLD)]
    assert not ours
