"""Directives that print the project instead of repeating it.

`{literalinclude}` shows a region of a source file, `{pytorch}` lines of the
installed PyTorch, `{generated}` a table made from the real package, and
`{drawing}` an SVG.
"""

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, cast

from docutils import nodes
from docutils.parsers.rst.directives import unchanged_required as required
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.directives.code import LiteralInclude
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

import badges
import claims
import regions
import rows
import tables

LANGUAGES = {
    ".c": "c",
    ".cpp": "cpp",
    ".h": "cpp",
    ".py": "python",
    ".pyi": "python",
    ".toml": "toml",
    ".txt": "cmake",
}


def find_once(lines: list[str], text: str, where: str) -> int:
    """The index of the one line that contains `text`."""
    found = [i for i, line in enumerate(lines) if text in line]
    if len(found) != 1:
        raise ValueError(
            f"{text!r} stands in {len(found)} lines of {where}; "
            f"it must stand in exactly one"
        )
    return found[0]


def label(env: BuildEnvironment, name: str, says: str) -> None:
    """Lets pages link to a place: [a text](#name), or [](#name) as it says."""
    env.domains.standard_domain.anonlabels[name] = env.docname, name
    env.domains.standard_domain.labels[name] = env.docname, name, says


class Code(LiteralInclude):
    """Sphinx's directive, of lines that their text finds, with a head."""

    def show(self, caption: str, place: nodes.Node) -> nodes.container:
        suffix = Path(self.arguments[0]).suffix
        self.options |= {"dedent": None, "language": LANGUAGES[suffix]}
        self.options["lineno-match"] = None
        [block] = super().run()
        if not isinstance(block, nodes.literal_block):
            raise ValueError(block.astext())
        text = block.astext().rstrip("\n")
        block.rawsource, block[:] = text, [nodes.Text(text)]
        if mark := self.options.get("mark"):
            line = find_once(text.splitlines(), mark, "the listing") + 1
            block["highlight_args"]["hl_lines"] = [line]
        # No class "caption" or "literal-block-wrapper": themes style those.
        head = nodes.paragraph("", "", classes=["listing-head"])
        head += nodes.inline("", "", *self.parse_inline(caption)[0])
        head += [nodes.Text(" "), place]
        return nodes.container("", head, block, classes=["listing"])


class Listing(Code):
    """A region: its caption, path, true line numbers and a link to the file."""

    option_spec = dict.fromkeys(("start-after", "end-before", "mark"), required)

    def run(self) -> list[nodes.Node]:
        _, path = self.env.relfn2path(self.arguments[0])
        name = self.options.get("start-after", "").strip("[]")
        region = known_regions().get(name)
        if region is None or self.options.get("end-before") != f"[/{name}]":
            raise self.error(
                f"There is no region in {self.arguments[0]} from [{name}] to "
                f"{self.options.get('end-before')}."
            )
        if regions.ROOT / region.file != Path(path):
            raise self.error(
                f"[{name}] stands in {region.file}, not in "
                f"{self.arguments[0]}; nox -s format mends the path."
            )
        up = "../" * self.env.docname.count("/")
        place = nodes.reference(
            "",
            "",
            nodes.literal("", f"{region.file}:{region.first}"),
            refuri=f"{up}{source_page(region.file)}.html#L-{region.first}",
            internal=True,
        )
        try:
            badge = badges.of(region)
            frame = self.show(region.caption, place)
        except (LookupError, ValueError) as error:
            raise self.error(str(error)) from None
        frame["ids"].append(name)
        to = f"{up}reference/listings.html#{badge.replace(' ', '-')}"
        looks = ["badge", badge.partition(" ")[0], "no-search"]
        mark = nodes.reference("", badge, refuri=to, classes=looks)
        frame[0].insert(1, [nodes.Text(" "), mark])
        self.env.note_dependency(str(rows.FOLDER / "badges.toml"))
        here = nodes.reference("", "#", refid=name, classes=["headerlink"])
        here["reftitle"] = "Link to this listing"
        frame[0] += here
        about = self.env.metadata[self.env.docname]
        about.setdefault("listings", []).append(region)
        label(self.env, name, frame[0][0].astext())
        return [frame]


class PyTorch(Code):
    """Lines of an installed PyTorch file, found by their text."""

    option_spec = dict.fromkeys(("start-at", "end-at", "mark"), required)

    def run(self) -> list[nodes.Node]:
        file = self.arguments[0]
        spec = importlib.util.find_spec("torch")
        assert spec
        assert spec.origin
        path = Path(spec.origin).parent.parent / file
        try:
            lines = path.read_text("utf-8").splitlines()
            first = find_once(lines, self.options["start-at"], file)
            find_once(
                lines[first : first + regions.LINES_MAX],
                self.options.setdefault("end-at", self.options["start-at"]),
                f"the {regions.LINES_MAX} lines from there",
            )
            self.arguments[0] = f"/{os.path.relpath(path, self.env.srcdir)}"
            place = nodes.inline("", f"PyTorch {rows.pytorch()}")
            return [self.show(f"`{file}:{first + 1}`", place)]
        except (OSError, KeyError, ValueError) as error:
            raise self.error(f"{file}: {error}") from None


class Generated(SphinxDirective):
    """What `module.function` of `tables` returns, as Markdown.

    Words after the name are given to the function.
    """

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(self.made())

    def made(self) -> str:
        name = self.arguments[0]
        try:
            text = tables.make(name)
        except (LookupError, ValueError) as error:
            raise self.error(str(error)) from None
        for path in tables.behind(name):
            self.env.note_dependency(path)
        return text


class Drawing(Generated):
    """An SVG put into the page, so that it follows light and dark.

    It is a file, or what a function of `tables` draws; with its caption it is
    a figure that has a number.
    """

    has_content = True
    option_spec = {"alt": required}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        svg = self.drawn() if name.endswith(".svg") else self.made()
        html = f'<div class="drawing">{svg}</div>'
        drawing = nodes.raw("", html, format="html")
        if not self.content:
            return [drawing]
        said, _ = self.parse_inline(" ".join(self.content))
        caption = nodes.caption("", "", *said)
        place = nodes.make_id(f"figure {name}")
        return [nodes.figure("", drawing, caption, ids=[place])]

    def drawn(self) -> str:
        path = Path(self.env.srcdir) / "_static" / self.arguments[0]
        alt = self.options.get("alt")
        if not alt or not path.is_file():
            raise self.error(
                f"{path.name} needs an :alt: and to be in _static."
            )
        self.env.note_dependency(str(path))
        svg: str = path.read_text("utf-8")
        says = f'<svg role="img" aria-label="{escape(alt)}" '
        return svg[svg.index("<svg") :].replace("<svg ", says, 1)


@functools.cache
def known_regions() -> dict[str, regions.Region]:
    """Read once a print, for which live reload starts a process."""
    found, _ = regions.find_regions(regions.read_sources())
    return {region.name: region for region in found}


def noted(env: BuildEnvironment, what: str) -> dict[str, Any]:
    """Page -> what was noted there under a name: "listings" or "claims".

    It is part of the metadata of pages, which Sphinx forgets with a page and
    takes over from the processes that read others.
    """
    pages = env.metadata.items()
    return {page: about[what] for page, about in pages if what in about}


def source_page(file: str) -> str:
    return f"source/{file}"


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file that is shown, or proves something; with links back.

    One whose text and links are those of the last print is not made again.
    """
    builder = cast(StandaloneHTMLBuilder, app.builder)
    titles = sorted((p, t.astext()) for p, t in app.env.titles.items())
    style = builder.build_info.config_hash, *titles
    look = hash_of(style, builder.templates.newest_template_mtime())
    stamp = Path(app.doctreedir) / "sources.json"
    fresh = app.fresh_env_used or not stamp.exists()
    made = {} if fresh else json.loads(stamp.read_text())
    for file, links in sorted(links_back(app).items()):
        text = (regions.ROOT / file).read_text("utf-8")
        before, made[file] = made.get(file), hash_of(look, text, sorted(links))
        page = source_page(file)
        if made[file] == before and builder.get_output_path(page).exists():
            continue
        code = builder.highlighter.highlight_block(
            text,
            LANGUAGES[Path(file).suffix],
            linenos="inline",
            linespans="L",
        )
        shown = {"title": file, "links": sorted(links), "code": code}
        yield page, shown, "source.html"
    stamp.write_text(json.dumps(made))


# A line of the file, where its link leads to, and what that says.
LinkBack = tuple[int, str, str]


def links_back(app: Sphinx) -> dict[str, set[LinkBack]]:
    links: dict[str, set[LinkBack]] = {}
    home: dict[str, str] = {}
    for page, listings in noted(app.env, "listings").items():
        for region in listings:
            link = (region.first, f"{page}.html#{region.name}", region.caption)
            links.setdefault(region.file, set()).add(link)
    # Some rows are on several pages: the chapter's comes first.
    claimed = noted(app.env, "claims")
    for page in sorted(claimed, reverse=True):
        home.update(dict.fromkeys(claimed[page], page))
    for name, tests in claims.proofs().items():
        for test in tests if name in home else ():
            there = f"{home[name]}.html#claim-{name}"
            link = (test.line, there, f"Proves {name}.")
            links.setdefault(test.file, set()).add(link)
    return links


def hash_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    known_regions.cache_clear()
    app.add_config_value("printed_by", [], "env")
    app.add_directive("literalinclude", Listing, override=True)
    app.add_directive("pytorch", PyTorch)
    app.add_directive("generated", Generated)
    app.add_directive("drawing", Drawing)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "version": "1"}
