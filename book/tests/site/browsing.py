"""What the browser's tests share: the site, its server, a page's complaints."""

import http.server
import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

import regions

SITE = Path(os.environ.get("BOOK_SITE", regions.ROOT / "book/_build/html"))
CHROMIUM = shutil.which(os.environ.get("CHROMIUM", "chromium"))


def launch(playwright: Playwright) -> Browser:
    assert CHROMIUM, "There is no Chromium: see `nox -s site`."
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    chromium = playwright.chromium
    return chromium.launch(executable_path=CHROMIUM, args=flags)


class Handler(http.server.SimpleHTTPRequestHandler):
    """As hosts of static pages: 404.html answers for what is not there."""

    def log_message(self, *args: object) -> None:
        pass

    def send_error(self, code: int, *args: object) -> None:
        body = (SITE / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Complaints(list[str]):
    """What a page said in its console, and what it asked other hosts for."""

    def watch(self, page: Page) -> None:
        page.on("console", self.console)
        page.on("pageerror", lambda error: self.append(f"{page.url}: {error}"))
        page.on("request", lambda request: self.request(request.url))

    def console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.append(f"{message.location['url']}: {message.text}")

    def request(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:")):
            self.append(f"asked another host: {url}")
