"""The printed site in a real browser: `nox -s site` runs what is here."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from browsing import SITE, Complaints, Handler, launch
from playwright.sync_api import Browser, Page, expect, sync_playwright

# A busy machine shows a long page late; clicks wait as long, in `window`.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The site, served on this machine."""
    handler = partial(Handler, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@contextmanager
def window(browser: Browser) -> Iterator[Page]:
    """Which must end without a complaint."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    complaints = Complaints()
    complaints.watch(page)
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window of its own, for what leaves something behind."""
    with window(browser) as page:
        yield page


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Page]:
    """One window for a file of tests that only read; it has what it loaded."""
    with window(browser) as page:
        yield page
