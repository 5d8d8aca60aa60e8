"""Each page of the site, once: what axe finds, how wide it is, what it says."""

import re
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from browsing import SITE, Complaints, launch
from playwright.sync_api import Browser, Page, sync_playwright

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
# Judges kinds, not copies: of what is built alike in one colour (spans of
# code, words in a line, texts of a figure, rows, items, paragraphs), two are
# kept. Else axe takes minutes.
THIN = """() => {
  const seen = {};
  const known = (...key) => (seen[key] = (seen[key] || 0) + 1) > 2;
  const PLACES = "aside, article, footer, header, table";
  const KINDS = "tr, li, :not(td, th) > p, div[class^=highlight-]";
  const WORDS = ".highlight span, .sig span, code, code span, em, strong";
  const all = selector => [...document.querySelectorAll(selector)];
  const place = part => part.closest(PLACES)?.tagName;
  for (const word of all(WORDS)) {
    const {tagName, className, parentElement} = word;
    const around = parentElement.closest(":not(.highlight *, .sig *)");
    const line = !!word.closest(".hll");
    if (word.matches(".highlight span:not([class])")
        || known(tagName, className, around.tagName, place(word), line))
      word.replaceWith(...word.childNodes);
  }
  for (const text of all("svg text, .headerlink")) {
    const looks = text.outerHTML.replace(/ (x|y|href)="[^"]*"/g, "");
    const {tagName, className} = text.parentElement;
    if (known(looks.replace(/>[^<]+/g, ">"), tagName, String(className)))
      text.remove();
  }
  for (const part of all(KINDS)) {
    const shape = part.outerHTML.replace(/ (?!class)[\\w-]+="[^"]*"/g, "");
    if (known(shape.replace(/>[^<]+/g, ">x"), place(part)))
      part.remove();
  }
}"""
RUN = """async rules => {
  const how = {resultTypes: ["violations"], preload: false, ...rules};
  const {violations} = await axe.run(document, how);
  return violations.flatMap(({id, nodes}) => nodes.map(
    node => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary}`));
}"""
CONTRAST = {"runOnly": ["color-contrast"]}
HEADINGS = """() => [
    ...document.querySelectorAll("article :is(h1,h2,h3,h4,h5,h6)")]
  .filter(h => h.checkVisibility()).map(h => Number(h.tagName[1]))"""
WIDE = """() => document.documentElement.scrollWidth
  - document.documentElement.clientWidth"""


class Seen(NamedTuple):
    name: str
    faults: list[str]  # found by axe, in either scheme
    headings: list[int]
    sideways: int  # pixels of it on a phone
    complaints: list[str]


def alike(paths: list[Path]) -> set[Path]:
    """Sources of the code that have no class of words which no other has."""
    seen: set[str] = set()
    found = set()
    for path in sorted(paths, key=lambda path: -path.stat().st_size):
        classes = set(re.findall(r'class="([^"]*)"', path.read_text()))
        if SITE / "source" in path.parents and classes <= seen:
            found.add(path)
        seen |= classes
    return found


def look(
    page: Page, complaints: Complaints, name: str, url: str, judge: bool = True
) -> Seen:
    complaints.clear()
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(url)
    sideways = page.evaluate(WIDE)
    headings = page.evaluate(HEADINGS)
    faults = []
    if judge:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(THIN)
        page.evaluate(AXE)
        faults = page.evaluate(RUN, {})
        page.emulate_media(color_scheme="dark")
        faults += [f"dark: {fault}" for fault in page.evaluate(RUN, CONTRAST)]
        page.emulate_media(color_scheme="light")
    return Seen(name, faults, headings, sideways, list(complaints))


def walk(address: str, names: list[tuple[str, bool]]) -> list[Seen]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_context(color_scheme="light").new_page()
        complaints = Complaints()
        complaints.watch(page)
        return [
            look(page, complaints, name, address + name, judge)
            for name, judge in names
        ]


@pytest.fixture(scope="module")
def survey(address: str) -> list[Seen]:
    """All pages, by two browsers at a time: this is most of the session."""
    paths = sorted(SITE.rglob("*.html"))
    copies = alike(paths)
    names = [
        (path.relative_to(SITE).as_posix(), path not in copies)
        for path in paths
    ]
    with ThreadPoolExecutor(2) as pool:
        both = pool.map(walk, [address] * 2, [names[::2], names[1::2]])
        return sorted(chain(*both))


def test_axe_finds_nothing(survey: list[Seen]) -> None:
    assert len(survey) > 80
    assert [(s.name, fault) for s in survey for fault in s.faults] == []


def test_headings_are_in_order(survey: list[Seen]) -> None:
    for seen in survey:
        assert seen.headings[0] == 1, seen.name
        assert seen.headings.count(1) == 1, seen.name
        for before, after in zip(
            seen.headings, seen.headings[1:], strict=False
        ):
            assert after <= before + 1, (seen.name, seen.headings)


def test_no_page_scrolls_sideways_on_a_phone(survey: list[Seen]) -> None:
    assert [(s.name, s.sideways) for s in survey if s.sideways > 0] == []


def test_no_page_complains_or_asks_another_host(survey: list[Seen]) -> None:
    assert [said for seen in survey for said in seen.complaints] == []


BAD = """<!doctype html><html lang="en"><title>x</title><main><article>
<h1>x</h1><h3>y</h3><p style="color:#aaa">pale</p><img src="data:,">
<div class="highlight">%s</div><p>%s</p><div style="width:900px">wide</div>
</article></main>
<script>console.error("loud");
fetch("http://192.0.2.1/").catch(() => 0)</script>"""


def test_the_survey_can_fail(browser: Browser) -> None:
    pale = '<{0} class="k" style="color:#bbb">if</{0}>'
    body = BAD % (pale.format("span") * 9, pale.format("code") * 9)
    context = browser.new_context(color_scheme="light")
    context.route("http://192.0.2.1/**", lambda route: route.abort())
    context.route(
        "http://127.0.0.1:1/",
        lambda route: route.fulfill(content_type="text/html", body=body),
    )
    page = context.new_page()
    complaints = Complaints()
    complaints.watch(page)
    seen = look(page, complaints, "bad", "http://127.0.0.1:1/")
    faults = [
        fault.removeprefix("dark: ").split(":")[0] for fault in seen.faults
    ]
    # In both schemes: a text, two of nine spans of code, two of nine words.
    assert faults.count("color-contrast") == 10
    assert {"image-alt", "heading-order"} <= set(faults)
    assert seen.headings == [1, 3]
    assert seen.sideways > 400
    assert any("loud" in said for said in seen.complaints)
    assert any("192.0.2.1" in said for said in seen.complaints)
    context.close()
