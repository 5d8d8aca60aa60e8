"""What the site has beside its pages, and what every page gets from the others.

A page for dead addresses, lists for machines (`llms.txt`, `sitemap.xml`), the
search by section, related pages, and words that lead to the glossary.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from docutils import nodes
from sphinx.addnodes import index, pending_xref
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment

import listing
import regions

LINK = re.compile(r"\]\(([\w./-]+)\.md(?:#[\w-]+)?\)")
# A word of the glossary; and those that also mean other things here.
TERM = re.compile(r"^(?! |```)(.+)\n  ", re.M)
LOOSE = {"block"}
# In a page: what is not its text, what a link can lead to, and code, of which
# each name counts once: a word with a mark or a capital inside.
MUTE = re.compile(
    r"<(svg|button)\b.*?</\1>|<span popover.*?</span>|"
    r'<p class="proof.*|<a class="(?:headerlink|proven|badge).*?</a>',
    re.S,
)
PLACE = re.compile(r'<(?:section|dt)\b[^>]* id="([^"]+)"[^>]*>')
CODE = re.compile('<div class="highlight-(?!output).*?</pre>', re.S)
TABLE = re.compile('(<table class="docutils)(.*?)(<tbody>.*?</table>)', re.S)
# A table of sentences, by the letters of a row, stacks on a phone; a browser
# would forget there what its parts are.
LONG = 80
ROLES = {"table": "table", "tr": "row", "th": "columnheader", "td": "cell"}
NAME = re.compile(r"\b(?=\w*(?:_|[a-z][A-Z]|[.:]+\w))[A-Za-z_][\w.:]*\w")


def begin(app: Sphinx) -> None:
    links.cache_clear()
    # Sphinx makes no index: decisions/0027-search-by-section.md.
    vars(app.builder)["search"] = False


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
    """The six pages with most links from and to this one."""
    others: Counter[str] = Counter()
    for (a, b), count in links().items():
        other = b if a == page else a
        if page in (a, b) and a != b and other in env.titles:
            others[other] += count
    del others["index"]
    return sorted(others, key=lambda a: (-others[a], a))[:6]


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
    about = app.env.metadata[app.env.docname]
    about["description"] = text
    entries = [e for x in doctree.findall(index) for e in x["entries"]]
    about["names"] = [(at, name) for _, name, at, main, _ in entries if main]


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


def prepare(table: re.Match[str]) -> str:
    """What the style cannot see of a table: its kind, the names of columns."""
    start, head, body = table.groups()
    names = [words(x) for x in re.findall("<th .*?</th>", head, re.S)]
    cells = [words(x) for x in re.findall("<td.*?</td>", body, re.S)]
    if all(map(str.isdigit, cells[:: len(names)])):
        start += " numbered"
    if len(names) < 3 or len("".join(cells)) * len(names) < LONG * len(cells):
        return start + head + body
    quoted = (json.dumps(name, ensure_ascii=False) for name in names)
    columns = "".join(f"--c{i}:{x};" for i, x in enumerate(quoted, 1))
    head = head.replace('">', f' stacks" style="{escape(columns)}">', 1)
    parts = re.compile(rf"<({'|'.join(ROLES)})\b")
    return parts.sub(
        lambda part: f'{part[0]} role="{ROLES[part[1]]}"', start + head + body
    )


def complete(
    app: Sphinx, page: str, template: str, context: Any, doctree: Any
) -> None:
    """Adds related pages; those that the menu lacks share it by their depth."""
    context["body"] = TABLE.sub(prepare, context.get("body", ""))
    to, titles = context["pathto"], app.env.titles
    others = related(app.env, page)
    context["related"] = [(to(x), titles[x].astext()) for x in others]
    if doctree is None and "/" in page:
        menus = vars(app).setdefault("openreg_menus", {})
        own = functools.cache(context["toctree"])
        context["toctree"] = menus.setdefault(page.count("/"), own)


def more_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    yield "404", {"title": "Nothing is here"}, "404.html"
    yield "search", {"title": "Search"}, "search.html"


def sections(app: Sphinx) -> Iterator[tuple[str, list[str]]]:
    """The menu: a caption, and the pages below it in their order."""
    root = app.env.get_doctree(app.config.root_doc)
    for tree in root.findall(lambda n: n.tagname == "toctree"):
        pages = [page for _, page in tree["entries"] if page in app.env.titles]
        yield tree["caption"] or app.config.project, pages


def searched(file: Path, about: dict[str, Any]) -> Iterator[list[str]]:
    """What links can lead to: anchor, heading, other names, text, code."""
    body = MUTE.sub("", re.split("</?article", file.read_text("utf-8"))[1])
    parts = iter(PLACE.split(body)[1:])
    for anchor, html in zip(parts, parts, strict=True):
        names = [n for x, n in about["names"] if f' id="{x}"' in html]
        code = dict.fromkeys(NAME.findall(words("".join(CODE.findall(html)))))
        plain = CODE.sub("", html)
        heading, text = re.split(r"</(?:h\d|dt)>", plain, maxsplit=1)
        yield [anchor, words(heading), "|".join(names), words(text), *code]


def words(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", "", html)).split())


def write_lists(app: Sphinx, error: Exception | None) -> None:
    """llms.txt, searchindex.js and, for a site with an address, sitemap.xml."""
    builder, about, out = app.builder, app.env.metadata, Path(app.outdir)
    if error or not isinstance(builder, StandaloneHTMLBuilder):
        return
    book = {
        page: list(searched(builder.get_output_path(page), about[page]))
        for page in sorted(about)
        if "nosearch" not in about[page]
    }
    known = {"about": about, "titles": app.env.titles, "config": app.config}
    known |= {"uri": builder.get_target_uri, "sections": list(sections(app))}
    known["book"] = json.dumps(book, ensure_ascii=False, separators=(",", ":"))
    with_address = ["sitemap.xml"] * bool(app.config.html_baseurl)
    for name in ("llms.txt", "searchindex.js", *with_address):
        text = builder.templates.render(name, known)
        (out / name).write_text(text, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", begin)
    app.connect("doctree-read", describe)
    app.connect("doctree-read", link_terms)
    app.connect("env-updated", around)
    app.connect("html-page-context", complete, priority=1)
    app.connect("html-collect-pages", more_pages)
    app.connect("build-finished", write_lists)
    return {"parallel_read_safe": True, "version": "1"}
