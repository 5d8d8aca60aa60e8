"""The printed site: links, other hosts, weight, paths of this machine."""

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from _pages import samples

import claims
import regions

# Where this print says that it stands, and that its sources do.
URL, REPOSITORY = "https://book.example/", "https://github.com/example/book"
KILOBYTES, ZIPPED = 450, 130
# The index of the search grows with the book, so it may have so much a page.
INDEX, BYTES_A_PAGE = "searchindex.js", 3500
ALLOWED = (regions.ROOT / "book" / "outside.txt").read_text().split()
LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src"}


def print_book(folder: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-nWq"),
            *("-d", folder / "doctrees"),
            *(regions.ROOT / "book", folder / "html"),
        ],
        check=True,
        env={**os.environ, "BOOK_URL": URL, "BOOK_REPOSITORY": REPOSITORY},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    print_book(folder)
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
        rel = attrs.get("rel") in ("stylesheet", "shortcut icon")
        if tag == "link" and rel:
            self.loads.append(attrs["href"])
        if tag in LOADED and LOADED[tag] in attrs:
            self.loads.append(attrs[LOADED[tag]])
        if tag == "img" and not attrs.get("alt"):
            self.mute.append(attrs.get("src", ""))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
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
        if re.search(r"@import\s+[\"'](https?:)?//", css):
            yield f"{path.name} loads an import"


def machine_paths(texts: dict[Path, str]) -> Iterator[str]:
    torch_folder = str(Path(torch.__file__).parents[1])
    for own in {str(regions.ROOT), str(Path.home()), sys.prefix, torch_folder}:
        for path, text in texts.items():
            if own in text:
                yield f"{path.name} contains {own}"


def outside(pages: dict[Path, Page]) -> dict[str, Path]:
    """Links that leave the site, each with a page that has it."""
    own = (URL, REPOSITORY)
    return {
        link: path
        for path, page in pages.items()
        for link in page.links
        if urlsplit(link).scheme and not link.startswith(own)
    }


def weights(path: Path, page: Page) -> tuple[int, int]:
    """Bytes of a page with all that it loads, as they are and zipped."""
    loads = [urlsplit(load).path for load in page.loads if load != INDEX]
    files = {(path.parent / load).resolve() for load in loads}
    texts = [file.read_bytes() for file in {path, *files}]
    return sum(map(len, texts)), sum(len(gzip.compress(t)) for t in texts)


def heavy(pages: dict[Path, Page]) -> Iterator[str]:
    for path, page in pages.items():
        plain, zipped = weights(path, page)
        if zipped > ZIPPED * 1000:
            yield f"{path.name} weighs {zipped} bytes zipped"
        if plain > KILOBYTES * 1000:
            yield f"{path.name} weighs {plain} bytes"


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 8
    assert list(dead_links(pages)) == []


def test_no_other_host_is_asked(site: Path, pages: dict[Path, Page]) -> None:
    styles = {path: path.read_text() for path in site.rglob("*.css")}
    assert styles
    assert list(foreign(pages, styles)) == []


def test_links_outside_are_on_the_list(pages: dict[Path, Page]) -> None:
    found = outside(pages)
    assert sorted(found) == sorted(ALLOWED), found


def test_no_page_is_heavy(site: Path, pages: dict[Path, Page]) -> None:
    assert list(heavy(pages)) == []
    assert (site / INDEX).stat().st_size < BYTES_A_PAGE * len(pages)


def test_an_edit_prints_its_pages_and_few_others(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    before = {path: path.stat().st_mtime_ns for path in pages}
    file = "backend/examples/extension/use.py"  # nothing is built from it
    edited = regions.ROOT / file
    times = edited.stat()
    os.utime(edited)
    try:
        print_book(site.parent)
    finally:
        os.utime(edited, ns=(times.st_atime_ns, times.st_mtime_ns))
    shown = regions.pages_of(regions.read_pages())
    found, _ = regions.find_regions(regions.read_sources())
    mine = {shown[region.name] for region in found if region.file == file}
    shows = set(map(regions.docname, mine))
    made = {path for path in pages if path.stat().st_mtime_ns != before[path]}
    anew = {p.relative_to(site).with_suffix("").as_posix() for p in made}
    # The last two have tables that read the folder, and the whole tree.
    assert shows
    assert shows | {"howto/port", "about/checked"} <= anew
    always = {"404", "genindex", "search"}
    assert len(anew - shows - always) < 6, anew


def test_every_page_says_what_it_is_about(site: Path) -> None:
    entries = (site / "llms.txt").read_text().splitlines()
    addresses = re.findall(r"\]\((.*?)\): \S", "\n".join(entries))
    places = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    pages = map(regions.docname, regions.read_pages())
    assert set(places) == {f"{URL}{page}.html" for page in pages}
    assert set(addresses) <= set(places)
    assert len(addresses) > 30
    for place in addresses:
        html = (site / place.removeprefix(URL)).read_text()
        for name in ("og:title", "og:description", "og:url", "og:image"):
            assert re.search(f'<meta property="{name}" content="[^"]+', html)
        assert f'href="{REPOSITORY}/' in html  # an editor


def test_a_dead_address_leads_back_from_any_depth(site: Path) -> None:
    assert f'<base href="{URL}">' in (site / "404.html").read_text()


def test_no_path_of_this_machine_is_printed(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.js*")]
    texts = {path: path.read_text() for path in files}
    assert list(machine_paths(texts)) == []


def test_each_page_of_the_book_and_no_other_has_its_foot(site: Path) -> None:
    feet = {
        path.relative_to(site).with_suffix("").as_posix()
        for path in site.rglob("*.html")
        if '<p class="proof" role="note">' in path.read_text()
    }
    assert feet == set(map(regions.docname, regions.read_pages()))


def test_the_glossary_is_one_click_away(site: Path) -> None:
    for page, term in {"stream": "kernel", "memory": "block"}.items():
        html = (site / "chapters" / f"{page}.html").read_text()
        assert html.count(f'"../reference/glossary.html#term-{term}"') == 1


def test_each_page_leads_to_related_ones(site: Path) -> None:
    for page in regions.read_pages():
        html = site / f"{regions.docname(page)}.html"
        assert '<nav class="related"' in html.read_text(), page


def test_each_claim_opens_the_list_of_its_tests(site: Path) -> None:
    for name, where in claims.find_claims(regions.read_pages()):
        file = where.partition(":")[0].removeprefix("book/")
        html = (site / file).with_suffix(".html").read_text()
        box = html.partition(f'id="claim-{name}-by"')[2].partition("</p>")[0]
        listed = re.findall(r"<code>(.*?)</code>", box)
        assert listed[: len(proofs := claims.proofs()[name])] == list(
            map(str, proofs)
        ), name
        assert f'popovertarget="claim-{name}-by"' in html


def test_every_image_has_words(pages: dict[Path, Page]) -> None:
    assert [m for page in pages.values() for m in page.mute] == []


SAMPLES = samples("site")


def test_a_dead_link_is_named(tmp_path: Path) -> None:
    links = "".join(
        f'<a href="{link}">x</a>'
        for link in (*SAMPLES["here"], *SAMPLES["dead"])
    )
    texts = {
        "a.html": links,
        "b.html": '<p id="here"></p><a name="\u00e4">x</a>',
    }
    (tmp_path / "sub").mkdir()
    for name in (*texts, "x.txt"):
        (tmp_path / name).touch()
    pages = {tmp_path / name: Page(html) for name, html in texts.items()}
    wrong = [f"a.html: {link} {says}" for link, says in SAMPLES["dead"].items()]
    assert list(dead_links(pages)) == wrong


def test_what_a_page_loads_is_here_and_of_this_host(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    for address in ("//h/x", "https://h/x"):
        page = Page("".join(html.format(address) for html in SAMPLES["loads"]))
        loads = [f"a.html loads {address}"] * len(SAMPLES["loads"])
        assert list(foreign({path: page}, {})) == loads
        assert list(dead_links({path: page})) == []
    page = Page("".join(html.format("no.x") for html in SAMPLES["loads"]))
    assert list(foreign({path: page}, {})) == []
    dead = ["a.html: no.x leads nowhere"] * len(SAMPLES["loads"])
    assert list(dead_links({path: page})) == dead
    for css, loads in SAMPLES["styles"].items():
        named = [f"a.css loads {load}" for load in loads]
        assert list(foreign({}, {Path("a.css"): css})) == named


def test_a_path_of_this_machine_is_named() -> None:
    places = str(regions.ROOT), str(Path.home()), sys.prefix, torch.__file__
    for place in places:
        texts = {Path("a.html"): f"<p>{place}/x</p>", Path("b.html"): "/of/"}
        wrong = list(machine_paths(texts))
        assert wrong
        assert all(w.startswith("a.html contains /") for w in wrong)


def test_what_leaves_the_site_or_has_no_words_is_listed() -> None:
    own = ("b.html", "#c", f"{URL}a.html", f"{REPOSITORY}/x")
    links = (*own, "https://else.example/")
    html = "".join(f'<a href="{link}">x</a>' for link in links)
    page = Page(f'{html}<img src="a.png"><img src="c.png" alt="C">')
    assert outside({Path("a.html"): page}) == {links[-1]: Path("a.html")}
    assert page.mute == ["a.png"]


def test_a_heavy_page_is_named(tmp_path: Path) -> None:
    path, page = tmp_path / "a.html", Page('<script src="a.js?v=1"></script>')
    for bytes_here, loaded, wrong in (
        (b"x" * (KILOBYTES * 1000 - 1000), 1000, ""),
        (b"x" * (KILOBYTES * 1000 - 999), 1000, r"weighs \d+ bytes"),
        (b"x", ZIPPED * 1000, r"weighs \d+ bytes zipped"),
    ):
        path.write_bytes(bytes_here)
        (tmp_path / "a.js").write_bytes(os.urandom(loaded))
        said = "".join(heavy({path: page}))
        assert re.fullmatch(wrong and f"a.html {wrong}", said)
