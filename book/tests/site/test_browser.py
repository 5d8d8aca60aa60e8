"""What a reader does with the site: menus, tabs, search, colours, keys."""

import re
import time

import pytest
from browsing import SITE, Complaints
from playwright.sync_api import Browser, Page, expect

TITLE = "article h1"
HITS = "#search-results li a"


def test_the_menu_leads_to_every_page_of_it(page: Page, address: str) -> None:
    page.goto(address)
    page.locator(".sidebar-tree").get_by_role("link", name="Streams").click()
    expect(page.locator(TITLE)).to_contain_text("Streams")
    current = page.locator(".sidebar-tree a.current")
    expect(current).to_have_text("Streams")
    # Its own contents stand beside the text of a window of this width.
    beside = page.locator(".toc-tree a").nth(1)
    expect(beside).to_be_in_viewport()
    text, contents = page.locator("article"), page.locator(".toc-drawer")
    ends, begins = text.bounding_box(), contents.bounding_box()
    assert ends
    assert begins
    assert ends["x"] + ends["width"] <= begins["x"]


def test_next_and_previous_are_inverse(page: Page, address: str) -> None:
    page.goto(address + "chapters/memory.html")
    page.locator("a.next-page").click()
    expect(page.locator(TITLE)).not_to_contain_text("Memory")
    page.locator("a.prev-page").click()
    expect(page.locator(TITLE)).to_contain_text("Memory")


def test_a_chosen_tab_is_remembered(page: Page, address: str) -> None:
    page.goto(address + "chapters/custom-operators.html")
    tab = page.get_by_role("tab", name="Python").first
    expect(tab).to_have_attribute("aria-selected", "false")
    tab.click()
    expect(tab).to_have_attribute("aria-selected", "true")
    page.goto(address + "chapters/custom-aliasing.html")
    there = page.get_by_role("tab", name="Python").first
    expect(there).to_have_attribute("aria-selected", "true")


# Of a panel: its own background, and whether its letters are those of the page.
PANEL = """() => {
  const [panel, page] = [".sphinx-tabs-panel", "article"].map(
    part => getComputedStyle(document.querySelector(part)));
  return [panel.backgroundColor, panel.color === page.color];
}"""


def test_colours_follow_the_system_and_the_button(
    page: Page, address: str
) -> None:
    def dark() -> bool:
        colour = page.evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        return sum(map(int, colour[4:-1].split(","))) < 200

    page.goto(address)
    assert not dark()
    page.emulate_media(color_scheme="dark")
    assert dark()
    page.goto(address + "chapters/custom-operators.html")
    assert page.evaluate(PANEL) == ["rgba(0, 0, 0, 0)", True]
    button = page.locator(".theme-toggle-content button")
    button.click()
    chosen = page.evaluate("document.body.dataset.theme")
    page.goto(address + "start.html")
    assert page.evaluate("document.body.dataset.theme") == chosen == "light"
    assert not dark()


def test_a_copied_session_has_no_prompts(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(address + "chapters/memory.html")
    box = page.locator(".highlight:has(.gp)").first
    box.hover()
    box.get_by_role("button").click()
    page.wait_for_function("navigator.clipboard.readText()")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip()
    assert ">>>" not in copied
    assert "$ " not in copied
    assert copied.splitlines()[0] in box.inner_text()


def test_a_listing_has_an_address_and_opens_its_file(
    page: Page, address: str
) -> None:
    page.goto(address + "chapters/device.html")
    listing = page.locator(".listing").first
    listing.hover()
    listing.locator("a.headerlink").click()
    name = listing.get_attribute("id")
    expect(page).to_have_url(re.compile(f"#{name}$"))
    listing.locator(".listing-head a:has(code)").click()
    expect(page.locator("h1.source")).to_be_visible()
    line = page.locator(":target")
    expect(line).to_be_in_viewport()
    page.locator("article li a").first.click()
    expect(page.locator(".listing:target")).to_be_in_viewport()


def test_keys_are_enough(page: Page, address: str) -> None:
    page.goto(address + "chapters/custom-operators.html")
    page.keyboard.press("Tab")
    expect(page.locator(".skip-to-content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#furo-main-content$"))
    tabs = page.get_by_role("tab")
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tabs.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    page.locator("article").click(position={"x": 1, "y": 1})
    page.keyboard.press("/")
    page.keyboard.type("generator")
    page.keyboard.press("Enter")
    page.locator(HITS).first.wait_for()


def test_wide_boxes_are_reached_by_tab(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address + "chapters/memory.html")
    page.wait_for_function("""() => {
      const boxes = document.querySelectorAll(".highlight pre, .table-wrapper");
      const wide = [...boxes].filter(box =>
        box.checkVisibility() && box.scrollWidth > box.clientWidth);
      return wide.length && wide.every(box => box.tabIndex === 0);
    }""")


def test_a_phone_has_its_menu_behind_a_button(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address)
    link = page.locator(".sidebar-tree").get_by_role("link", name="Streams")
    expect(link).not_to_be_in_viewport()
    page.locator(".mobile-header .nav-overlay-icon").click()
    link.click()
    expect(page.locator(TITLE)).to_contain_text("Streams")


# The first cells of a table of sentences, as far as possible from a column.
CELLS = """selector => {
  const table = [...document.querySelectorAll(selector)].at(-1);
  const names = [...table.querySelectorAll("thead th")].map(x => x.textContent);
  return [...table.querySelectorAll("tbody tr:nth-child(-n+3) td")]
    .filter(cell => cell.textContent).map(cell => {
      const {x, y, width} = cell.getBoundingClientRect();
      const label = getComputedStyle(cell, "::before").content;
      return [x, y, width, label === `"${names[cell.cellIndex]}"`];
    });
}"""


@pytest.mark.parametrize("name", ["howto/checklist", "reference/errors"])
@pytest.mark.parametrize("scripts", [True, False])
def test_sentences_in_columns_stack_on_a_phone(
    browser: Browser, address: str, name: str, scripts: bool
) -> None:
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{address}{name}.html")
    wide = page.evaluate(CELLS, "table.stacks")
    assert len({x for x, *_ in wide}) > 2
    page.set_viewport_size({"width": 390, "height": 800})
    cells = page.evaluate(CELLS, "table.stacks")
    assert len({x for x, *_ in cells}) == 1
    assert [y for _, y, *_ in cells] == sorted({y for _, y, *_ in cells})
    assert all(width > 300 and labelled for *_, width, labelled in cells)
    stacked = page.locator("table.stacks").last
    expect(stacked).to_have_attribute("role", "table")
    expect(stacked.locator("tbody td:not([role=cell])")).to_have_count(0)
    context.close()


def assert_tabs_are_open(page: Page) -> None:
    """Each panel is shown, right below its own tab."""
    for tabs in page.locator(".sphinx-tabs").all():
        parts = []
        for tab in tabs.get_by_role("tab", include_hidden=True).all():
            panel = page.locator(f"#{tab.get_attribute('aria-controls')}")
            parts += [tab.bounding_box(), panel.bounding_box()]
            assert tab.inner_text()
        ends = [box["y"] + box["height"] for box in parts if box]
        begins = [box["y"] for box in parts if box]
        assert len(begins) == len(parts) >= 4
        assert all(
            end <= begin + 1
            for end, begin in zip(ends, begins[1:], strict=False)
        )


def test_without_javascript_all_tabs_are_open(
    browser: Browser, address: str
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + "chapters/custom-operators.html")
    assert_tabs_are_open(page)
    context.close()


def test_paper_shows_everything_and_no_menu(page: Page, address: str) -> None:
    page.goto(address + "chapters/custom-operators.html")
    hidden = page.locator(".sphinx-tabs-panel").nth(1)
    answer = page.locator("details.answer > :not(summary)").first
    expect(hidden).not_to_be_visible()
    with pytest.raises(AssertionError):
        assert_tabs_are_open(page)
    page.emulate_media(media="print")
    assert_tabs_are_open(page)
    expect(answer).to_be_visible()
    for part in (
        *(".sidebar-drawer", ".toc-drawer", ".skip-to-content"),
        "button.copybtn >> nth=0",
    ):
        expect(page.locator(part)).not_to_be_visible()


def test_each_figure_has_a_number_and_a_caption() -> None:
    pages = [path.read_text() for path in SITE.glob("chapters/*.html")]
    drawn = "".join(pages).count('<div class="drawing">')
    numbers = [
        int(number)
        for page in pages
        for number in re.findall(
            r'</div>\s*<figcaption>\s*<p><span class="caption-number">'
            r'Figure (\d+)\. </span><span class="caption-text">\w',
            page,
        )
    ]
    assert sorted(numbers) == list(range(1, drawn + 1))
    assert drawn > 20


def test_a_dead_address_says_where_to_go(
    browser: Browser, address: str
) -> None:
    # A window without the check of complaints: a 404 is one.
    page = browser.new_page()
    answer = page.goto(address + "gone.html")
    assert answer
    assert answer.status == 404
    expect(page.locator(TITLE)).to_have_text("Nothing is here")
    page.get_by_role("textbox", name="Words").or_(
        page.get_by_role("searchbox", name="Words")
    ).fill("guard")
    page.keyboard.press("Enter")
    page.locator(HITS).first.wait_for()
    page.context.close()


def test_a_complaint_fails_its_test(browser: Browser) -> None:
    page = browser.new_page()
    complaints = Complaints()
    complaints.watch(page)
    page.goto("data:text/html,<script>nothing.there</script>")
    deadline = time.monotonic() + 60
    while not complaints and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert "nothing is not defined" in complaints[0]
    page.context.close()
