"""What people type, and the section that the search shows first."""

import json
import re
import tomllib
from pathlib import Path

from browsing import SITE
from playwright.sync_api import Page, expect

QUERIES = tomllib.loads(Path(__file__).with_name("searches.toml").read_text())
# Types each query into the box of one page; the first hit of each, if any.
TYPE = """queries => queries.map(query => {
  const box = document.getElementById("search-words");
  box.value = query;
  box.dispatchEvent(new Event("input"));
  return document.querySelector("#search-results a")?.getAttribute("href");
})"""


def read_index() -> dict[str, list[list[str]]]:
    text = (SITE / "searchindex.js").read_text()
    book: dict[str, list[list[str]]]
    book = json.loads(text[text.index("{") : text.rindex(";")])
    return book


def address_of(place: str) -> str:
    page, hash_sign, anchor = place.partition("#")
    return f"{page}.html{hash_sign}{anchor}"


def test_each_query_finds_its_section_first(page: Page, address: str) -> None:
    page.goto(address + "search.html")
    first = page.evaluate(TYPE, list(QUERIES))
    found = dict(zip(QUERIES, first, strict=True))
    wrong = {
        query: f"{found[query]}, not {address_of(place)}"
        for query, place in QUERIES.items()
        if found[query] != address_of(place)
    }
    assert wrong == {}
    assert len(QUERIES) >= 50


def test_what_nobody_wrote_is_not_found(page: Page, address: str) -> None:
    page.goto(address + "search.html?q=%3Cb%3Eqwxyz")
    says = page.get_by_role("status")
    expect(says).to_contain_text("Nothing has these words")
    made = page.locator(":is(.search-summary, #search-results) :is(b, i)")
    expect(made).to_have_count(0)
    assert page.evaluate(TYPE, ["", "  ", "the", "<i>"])[:2] == [None, None]
    expect(page.locator("#search-results li").first).to_be_visible()
    expect(made).to_have_count(0)


def test_an_excerpt_is_cut_only_where_the_text_goes_on(
    page: Page, address: str
) -> None:
    places = read_index()["reference/glossary"]
    texts = {heading: text for _, heading, _, text, *_ in places}
    page.goto(address + "search.html?q=pinned+memory")
    hits = page.locator("#search-results li")
    expect(hits.first.locator(".context")).to_have_text(re.compile(" …$"))
    link = page.get_by_role("link", name="pinned memory", exact=True)
    excerpt = hits.filter(has=link).locator(".context")
    assert len(texts["pinned memory"]) < 220
    expect(excerpt).to_have_text(texts["pinned memory"])


def test_a_hit_leads_to_its_section_from_a_file_and_offline(page: Page) -> None:
    page.context.set_offline(True)
    page.goto((SITE / "index.html").as_uri())
    link = page.locator("link[rel=search]")
    expect(link).to_have_attribute("href", "search.html")
    page.get_by_role("textbox", name="Search").first.fill("out of memory")
    page.keyboard.press("Enter")
    hit = page.locator("#search-results li").first
    expect(hit.locator("mark").first).to_contain_text("memory")
    hit.get_by_role("link").click()
    place = page.locator(":target")
    expect(place).to_contain_text("out of memory")
    expect(place.get_by_role("heading").first).to_be_in_viewport()
    expect(page.locator("span.highlighted").first).to_be_visible()
    assert page.url.startswith("file:")


def test_each_place_of_the_index_is_on_its_page() -> None:
    book = read_index()
    assert len(book) > 60
    for name, places in book.items():
        html = (SITE / f"{name}.html").read_text()
        anchors = [anchor for anchor, *_ in places]
        assert len(anchors) == len(set(anchors)), name
        assert all(f' id="{anchor}"' in html for anchor in anchors), name
        assert all(heading for _, heading, *_ in places), name
        words = " ".join(word for place in places for word in place[1:])
        assert "<span" not in words, name
    memory = dict((place[0], place) for place in book["chapters/memory"])
    _, heading, names, said, *code = memory["when-the-device-is-out-of-memory"]
    assert heading == "When the device is out of memory"
    assert "OOM" in names.split("|")
    assert "OutOfMemoryError" in said
    assert len(code) == len(set(code)) > 5
