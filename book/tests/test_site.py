"""The printed site: links, other hosts, paths of this machine."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch

import regions

LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-nWEq"),
            *("-d", folder / "doctrees"),
            *(regions.ROOT / "book", folder / "html"),
        ],
        check=True,
    )
    return folder / "html"


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.mute: list[str] = []
        self.feed(html)

    def handle_starttag(
        self, tag: str, pairs: list[tuple[str, str | None]]
    ) -> None:
        attrs = {name: value or "" for name, value in pairs}
        self.ids |= {attrs[name] for name in ("id", "name") if name in attrs}
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        if tag == "link" and attrs.get("rel") not in ("canonical",):
            self.loads.append(attrs["href"])
        if tag in LOADED and LOADED[tag] in attrs:
            self.loads.append(attrs[LOADED[tag]])
        if tag == "img" and not attrs.get("alt"):
            self.mute.append(attrs.get("src", ""))


def read_site(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def dead_links(pages: dict[Path, Page]) -> Iterator[str]:
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve()
            target = target if parts.path else path
            if target.is_dir() or not target.exists():
                yield f"{path.name}: {link} leads nowhere"
            elif parts.fragment and target.suffix == ".html":
                fragment = unquote(parts.fragment)
                if fragment not in pages[target].ids and fragment != "top":
                    yield f"{path.name}: {link} has no such anchor"


def foreign(pages: dict[Path, Page], styles: dict[Path, str]) -> Iterator[str]:
    for path, page in pages.items():
        for load in page.loads:
            if urlsplit(load).netloc:
                yield f"{path.name} loads {load}"
    for path, css in styles.items():
        for url in re.findall(r"url\(\s*[\"']?((?:https?:)?//[^)]*)", css):
            yield f"{path.name} loads {url}"
        if re.search(r"@import\s+(url\()?[\"']?(https?:)?//", css):
            yield f"{path.name} imports from another host"


def machine_paths(texts: dict[Path, str]) -> Iterator[str]:
    torch_folder = str(Path(torch.__file__).parents[1])
    for own in {str(regions.ROOT), str(Path.home()), sys.prefix, torch_folder}:
        for path, text in texts.items():
            if own in text:
                yield f"{path.name} contains {own}"


def test_links_lead_somewhere(site: Path) -> None:
    pages = read_site(site)
    assert len(pages) > 8
    assert list(dead_links(pages)) == []


def test_nothing_comes_from_another_host(site: Path) -> None:
    styles = {path: path.read_text() for path in site.rglob("*.css")}
    assert styles
    assert list(foreign(read_site(site), styles)) == []


def test_no_path_of_this_machine_is_printed(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.js*")]
    texts = {path: path.read_text() for path in files}
    assert list(machine_paths(texts)) == []


def test_every_image_has_words(site: Path) -> None:
    assert [m for page in read_site(site).values() for m in page.mute] == []


def test_the_record_names_what_pages_show(site: Path) -> None:
    found, _ = regions.find_regions(regions.read_sources())
    known = {region.name: region for region in found}
    uses = {
        (fence.page, fence.argument)
        for page, text in regions.read_pages().items()
        for fence in regions.find_fences(page, text)
        if fence.kind == "{listing}"
    }
    record = json.loads((site / "listings.json").read_text())
    assert {(f"book/{r['page']}.md", r["region"]) for r in record} == uses
    for entry in record:
        region = known[entry["region"]]
        assert (entry["file"], entry["first"], entry["last"]) == (
            region.file,
            region.first,
            region.last,
        )


def test_the_checks_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    html = (
        '<a href="b.html">x</a><a href="#no">y</a><img src="//h/i.png">'
        f"<p>{regions.ROOT}</p>"
    )
    path.write_text(html)
    pages = {path: Page(html)}
    css = {tmp_path / "a.css": 'a { b: url("https://h/f.woff") }'}
    assert len(list(dead_links(pages))) == 2
    assert len(list(foreign(pages, css))) == 2
    assert pages[path].mute == ["//h/i.png"]
    assert any(str(regions.ROOT) in w for w in machine_paths({path: html}))
