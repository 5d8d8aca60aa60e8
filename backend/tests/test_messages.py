"""Every message in the sources is told of on the errors page, and met."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tables import checklist, messages

pytestmark = pytest.mark.one_mode

ROOT = Path(__file__).parents[2]
MESSAGES = messages.found()


def quantized() -> torch.Tensor:
    return torch.ops.aten.quantize_per_tensor(
        torch.ones(2, device="openreg"), 1.0, 0, torch.qint8
    )


REFUSALS: dict[str, Callable[[], torch.Tensor]] = {
    "openreg: an empty tensor of layout Jagged "
    "is not supported; expected torch.strided": lambda: torch.empty(
        2, device="openreg", layout=torch.jagged
    ),
    "Only dense CPU tensors can be pinned": lambda: torch.empty(
        2, device="openreg", pin_memory=True
    ),
    "Copying from quantized Tensor to non-quantized Tensor": lambda: torch.ones(
        2, device="openreg"
    ).copy_(quantized()),
    "openreg: a quantized tensor cannot be viewed as Byte": lambda: (
        quantized().view(torch.uint8)
    ),
}


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("says", REFUSALS)
def test_a_refusal_that_no_other_test_meets(says: str) -> None:
    with pytest.raises(RuntimeError) as error:
        REFUSALS[says]()
    assert str(error.value).startswith(says)


def test_the_scanner_reads_calls_of_every_kind() -> None:
    cpp = """
    TORCH_CHECK(a != "x" && f(b, c), "not ", a, ", but (", b, ") \\"q\\"");
    TORCH_CHECK_WITH(OutOfMemoryError, false, "two "  // a comment, "here"
        "parts of ", g("no", 1));
    return fail(orErrorInvalidValue, "%s: %zu bytes, or more", call, 8);
    refuse("NAME", "0 or 1");
    """
    found = [message.text for message in messages.in_cpp("a.cpp", cpp)]
    gap = messages.GAP
    assert found == [
        f'not {gap}, but ({gap}) "q"',
        f"two parts of {gap}",
        f"{gap}: {gap} bytes, or more{gap}",
        f"NAME is '{gap}'; expected 0 or 1",
    ]
    python = """
raise ValueError(f"one {x} of two")
raise error from None
torch._check(x > 0, lambda: "three of four")
"""
    found = [message.text for message in messages.in_python("a.py", python)]
    assert found == [f"one {gap} of two", "three of four"]


def test_no_call_that_raises_is_overlooked() -> None:
    # Counted without the scanner: what begins a message in each language.
    sources = [
        path.read_text()
        for folder in ("torch_openreg", "csrc", "device")
        for path in (ROOT / "backend" / folder).rglob("*.*")
        if path.suffix in (".cpp", ".py")
    ]
    begins = re.compile(
        r"TORCH_(?:CHECK|WARN)\w*\(|c10::AcceleratorError\(\n|^ *raise \w+\("
        r"|\bfail\(\n? *orError|torch\._check\(|^ *refuse\(",
        re.M,
    )
    count = sum(len(begins.findall(source)) for source in sources)
    sentences = [m for m in MESSAGES if "kernel … on" not in m.text]
    # Two hand on a sentence that is made elsewhere, and one defines `fail`.
    assert count == len(sentences) + 3


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
def test_the_page_tells_of_every_message_once(
    message: messages.Found,
) -> None:
    rows = [row.says for row in messages.told(message)]
    assert len(rows) == 1, (
        f"{message.file}:{message.line} says {message.text!r}, of which "
        f"{len(rows)} rows of TOLD in book/_ext/tables/messages.py tell {rows}"
    )


# What only a system that fails, or a race with the end of a process, brings.
OUT_OF_REACH = {
    "the process is ending",
    "munmap:",
    "bytes of another process's device:",
}


def unbroken(text: str) -> str:
    """A source with its literals joined, as far as this can be seen."""
    text = re.sub(r'"\s*\n\s*[rf]*"', "", text)
    return re.sub(r"\s+", " ", re.sub(r"\\(.)", r"\1", text))


@pytest.mark.parametrize("row", messages.TOLD, ids=lambda row: row.says)
def test_a_row_is_of_a_message_that_its_test_meets(
    row: messages.Told,
) -> None:
    assert any(row.says in message.text for message in MESSAGES)
    assert (row.test == "") == (row.says in OUT_OF_REACH)
    if row.test.endswith(".md"):
        assert row.says in unbroken((ROOT / "book" / row.test).read_text())
    elif row.test:
        file, _, name = row.test.partition("::")
        source = (ROOT / "backend" / "tests" / file).read_text()
        assert re.search(rf"^ *def {name}\(", source, re.M)
        assert row.says in unbroken(source)


def test_the_pages_messages_are_those_of_their_examples() -> None:
    shown = messages.on_pages()
    assert "TypeError: RNG state must be a torch.ByteTensor" in shown
    assert len(shown) > 40
    assert all(pages for pages in shown.values())
    ours = [m for m in shown if any(row.says in m for row in messages.TOLD)]
    assert not ours


def test_every_message_is_in_a_table() -> None:
    printed = "".join(
        make()
        for make in (
            messages.messages_python,
            messages.messages_backend,
            messages.messages_device,
        )
    )
    for message in MESSAGES:
        assert " ".join(message.text.split()).replace("|", "\\|") in printed
    missing = messages.messages_missing()
    for point in checklist.POINTS:
        if ": " in point.symptom:
            assert point.symptom in missing
