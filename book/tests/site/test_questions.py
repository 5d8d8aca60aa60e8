"""Questions of integrators, each answered within three clicks."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

QUESTIONS = tomllib.loads(
    Path(__file__).with_name("questions.toml").read_text()
)["question"]


def click(page: Page, how: str, what: str) -> None:
    if how == "search":
        page.locator("input[name=q]").first.fill(what)
        page.keyboard.press("Enter")
        page.locator("#search-results li a").first.wait_for()
        return
    place = {
        "menu": ".sidebar-tree",
        "here": ".toc-tree",
        "hit": "#search-results li:nth-child(-n+10)",
    }[how]
    name = re.compile(rf"^\s*{re.escape(what)}\s*$")
    page.locator(place).get_by_role("link", name=name).first.click()


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda q: q["ask"])
def test_three_clicks_answer(
    reader: Page, address: str, asked: dict[str, Any]
) -> None:
    assert 1 <= len(asked["clicks"]) <= 3
    reader.goto(address)
    for step in asked["clicks"]:
        click(reader, *step.split(": ", 1))
    expect(reader.locator("article")).to_contain_text(asked["answer"])
    heading = reader.locator(":target").first
    if "#" in reader.url:
        expect(heading).to_be_in_viewport()


def test_twenty_are_asked() -> None:
    assert len({asked["ask"] for asked in QUESTIONS}) >= 20
