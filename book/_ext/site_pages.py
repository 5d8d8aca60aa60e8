"""What the site has beside its pages, and what every page gets from the others.

A page for dead addresses, lists for machines (`llms.txt`, `sitemap.xml`),
related pages, and words that lead to the glossary.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment

import listing
import regions

RELATED = 6
LINK = re.compile(r"\]\(([\w./-]+)\.md(?:#[\w-]+)?\)")
# A word of the glossary; and those that also mean other things here.
TERM = re.compile(r"^(?! |```)(.+)\n  ", re.M)
LOOSE = {"block"}
LOST = """<h1>Nothing is here</h1>
<p>The address leads to no page: it may have been renamed, which the
<a href="about/changelog.html">changelog</a> would say.</p>
<p>Go to the <a href="index.html">first page</a>, or search:</p>
<form role="search" aria-label="From here" action="search.html"><p>
<input name="q" type="search" aria-label="Words"> <button>Search</button>
</p></form>"""


@functools.cache
def links() -> Counter[tuple[str, str]]:
    """(from, to) of the links between pages, as they are written."""
    found: Counter[tuple[str, str]] = Counter()
    for file, text in regions.read_pages().items():
        page = regions.docname(file)
        for target in LINK.findall(text):
            to = normpath(join(dirname(page), target)).lstrip("/")
            found[page, to] += 1
    return found


def related(env: BuildEnvironment, page: str) -> list[str]:
    """The pages with most links from and to this one."""
    others: Counter[str] = Counter()
    for (a, b), count in links().items():
        other = b if a == page else a
        if page in (a, b) and a != b and other in env.titles:
            others[other] += count
    del others["index"]
    return sorted(others, key=lambda a: (-others[a], a))[:RELATED]


def around(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """The pages to write anew because of what other pages and runs say."""
    titles = sorted((page, t.astext()) for page, t in env.titles.items())
    menu = sorted(env.toctree_includes.items())
    labels = sorted(env.domains.standard_domain.labels.items())
    heads = [(page, env.metadata[page].get("myst_slugs")) for page, _ in titles]
    of_all = (vars(app)["openreg_proof"], titles, menu, labels, heads)
    common = listing.hash_of(*of_all)
    now = {page: (common, related(env, page)) for page in env.found_docs}
    before = vars(env).get("openreg_written_for", {})
    vars(env)["openreg_written_for"] = now
    return [page for page in now if now[page] != before.get(page)]


def describe(app: Sphinx, doctree: nodes.document) -> None:
    """Keeps the promise that a page begins with."""
    found = doctree.next_node(nodes.paragraph)
    text = found.astext().replace("\n", " ") if found else ""
    app.env.metadata[app.env.docname]["description"] = text


@functools.cache
def terms(source: Path) -> list[str]:
    """The words of the glossary; of two that begin alike, the longer first."""
    text = (source / "reference" / "glossary.md").read_text("utf-8")
    return sorted(TERM.findall(text), key=len, reverse=True)


def link_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Leads from a page's first use of a word to what the glossary says."""
    page, words = app.env.docname, terms(Path(app.srcdir))
    if page.startswith(("about/", "reference/")):
        return
    word = re.compile(rf"(?<![\w-])((?:{'|'.join(words)})s?)(?![\w-])", re.I)
    by_hand = {x["reftarget"].lower() for x in doctree.findall(pending_xref)}
    known = {word.lower() for word in words} - LOOSE
    left = known - by_hand
    for text in list(doctree.findall(nodes.Text)):
        above = text.parent
        if above.tagname != "paragraph" or above.parent.tagname == "entry":
            continue  # code, a link, a title, a cell of a table
        parts: list[nodes.Node] = []
        for part in word.split(text):
            term = part.lower()
            term = term if term in known else term.removesuffix("s")
            if term in left:
                left.remove(term)
                to = {"refdomain": "std", "reftype": "term", "refdoc": page}
                said = nodes.inline("", part)
                parts.append(pending_xref("", said, reftarget=term, **to))
            else:
                parts.append(nodes.Text(part))
        above.replace(text, parts)


def complete(
    app: Sphinx, page: str, template: str, context: Any, doctree: Any
) -> None:
    """Adds related pages; those that the menu lacks share it by their depth."""
    to, titles = context["pathto"], app.env.titles
    others = related(app.env, page)
    context["related"] = [(to(x), titles[x].astext()) for x in others]
    if doctree is None and "/" in page:
        menus = vars(app).setdefault("openreg_menus", {})
        own = functools.cache(context["toctree"])
        context["toctree"] = menus.setdefault(page.count("/"), own)


def lost_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    yield "404", {"title": "Nothing is here", "body": LOST}, "page.html"


def sections(app: Sphinx) -> Iterator[tuple[str, list[str]]]:
    """The menu: a caption, and the pages below it in their order."""
    root = app.env.get_doctree(app.config.root_doc)
    for tree in root.findall(lambda n: n.tagname == "toctree"):
        pages = [page for _, page in tree["entries"] if page in app.env.titles]
        yield tree["caption"] or app.config.project, pages


def write_lists(app: Sphinx, error: Exception | None) -> None:
    """llms.txt; and where the site has an address, sitemap.xml."""
    builder, base = app.builder, app.config.html_baseurl
    if error or not isinstance(builder, StandaloneHTMLBuilder):
        return
    about = app.env.metadata
    home = about[app.config.root_doc]["description"]
    lines = [f"# {app.config.project}", "", f"> {home}"]
    for caption, pages in sections(app):
        lines += ["", f"## {caption}", ""]
        for page in pages:
            title = app.env.titles[page].astext()
            words = about[page]["description"]
            address = base + builder.get_target_uri(page)
            lines.append(f"- [{title}]({address}): {words}".rstrip(": "))
    out = Path(app.outdir)
    (out / "llms.txt").write_text("\n".join(lines) + "\n")
    if base:
        pages = sorted(app.env.all_docs)
        places = (escape(base + builder.get_target_uri(p)) for p in pages)
        urls = (f"<url><loc>{place}</loc></url>" for place in places)
        (out / "sitemap.xml").write_text(
            '<?xml version="1.0" encoding="utf-8"?>\n'
            '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
            + "\n".join(urls)
            + "\n</urlset>\n"
        )


def setup(app: Sphinx) -> dict[str, Any]:
    links.cache_clear()
    app.connect("doctree-read", describe)
    app.connect("doctree-read", link_terms)
    app.connect("env-updated", around)
    app.connect("html-page-context", complete, priority=1)
    app.connect("html-collect-pages", lost_page)
    app.connect("build-finished", write_lists)
    return {"parallel_read_safe": True, "version": "1"}
