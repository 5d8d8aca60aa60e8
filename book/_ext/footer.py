"""Shows on the page what proves it: a claim's tests, and what the last run did.

`{claim}` marks a sentence that tests prove; pressing the mark names them.
`{proven}` marks a row of a table, and leads to its test. The foot of each page
says what a full run of the tests has run of it.
"""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxRole

import claims
import listing
import proof
import regions

UNRUN = (
    "Not yet run on this tree: <code>nox -s tests</code> fills in this line."
)


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")


class Claim(SphinxRole):
    """A small button, and a box with the tests that it opens."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, anchor = self.text, f"claim-{self.text}"
        by = claims.proofs().get(name, [])
        for test in by:
            self.env.note_dependency(str(regions.ROOT / test.file))
        made(self.env).setdefault(self.env.docname, {})[name] = by
        up = "../" * self.env.docname.count("/")
        rows = "".join(
            f'<a href="{up}{listing.source_page(test.file)}.html'
            f'#L-{test.line}"><code>{test.file}::{test.name}</code></a>'
            for test in by
        )
        # A box within a paragraph can hold no list.
        html = (
            f'<button type="button" class="claim" popovertarget="{anchor}-by" '
            f'title="Which tests prove this?">proven</button>'
            f'<span popover id="{anchor}-by" class="claim-tests">'
            f"<b>{escape(name)}</b> is proven by {rows}</span>"
        )
        labels = self.env.domains.standard_domain
        labels.anonlabels[anchor] = self.env.docname, anchor
        labels.labels[anchor] = self.env.docname, anchor, name
        mark = nodes.inline("", "", ids=[anchor])
        mark += nodes.raw("", html, format="html")
        return [mark], []


class Proven(SphinxRole):
    """A small link at a row, to the test that proves it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        by = claims.proofs()[self.text]
        made(self.env).setdefault(self.env.docname, {})[self.text] = by
        up = "../" * self.env.docname.count("/")
        links = " ".join(
            f'<a class="proven" href="{up}{listing.source_page(test.file)}'
            f'.html#L-{test.line}" aria-label="Proven by {test.name}" '
            f'title="{test}">✓</a>'
            for test in by
        )
        html = f'<span id="claim-{self.text}">{links}</span>'
        return [nodes.raw("", html, format="html")], []


def made(env: BuildEnvironment) -> dict[str, dict[str, list[claims.Test]]]:
    """Page -> its claims and rows, each with the tests that it names."""
    found: dict[str, dict[str, list[claims.Test]]]
    found = vars(env).setdefault("openreg_claims", {})
    return found


def forget_page(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    made(env).pop(docname, None)


def merge(
    app: Sphinx,
    env: BuildEnvironment,
    pages: set[str],
    other: BuildEnvironment,
) -> None:
    theirs = made(other)
    made(env).update((page, theirs[page]) for page in pages & theirs.keys())


def outdated(
    app: Sphinx, env: BuildEnvironment, *changes: set[str]
) -> list[str]:
    """The pages with a claim or a row that other tests prove now."""
    now = claims.proofs()
    return [
        page
        for page, claimed in made(env).items()
        if any(now.get(name, []) != by for name, by in claimed.items())
    ]


def summary(
    record: dict[str, Any] | None,
    page: str,
    shown: list[regions.Region],
    made: list[str],
) -> str:
    """What the last full run says of a page, as a line of HTML."""
    if record is None:
        return UNRUN
    parts = []
    if shown:
        ran = [record["regions"][region.name] for region in shown]
        files = plural(len({region.file for region in shown}), "file")
        lines = plural(sum(filter(None, ran)), "line")
        parts.append(
            f"{plural(len(shown), 'listing')} of {files}, whose {lines} of "
            f"code all ran"
        )
        if silent := sum(not lines for lines in ran):
            parts.append(f"{silent} of them without a line that can run")
    if examples := record["examples"].get(page):
        parts.append(f"{plural(examples, 'example')} run and compared")
    if made:
        tests = sum(len(record["claims"][name]) for name in made)
        parts.append(
            f"{plural(len(made), 'claim')} with {plural(tests, 'test')}"
        )
    parts.append(
        f"torch {record['torch']}, {record['commit']}, {record['date']}"
    )
    return "Checked: " + "; ".join(parts) + "."


def add_footer(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    if page not in app.env.found_docs or "body" not in context:
        return
    file = f"book/{page}.md"
    line = summary(
        vars(app)["openreg_proof"],
        file,
        [region for at, region in listing.shown(app.env) if at == page],
        [name for name in made(app.env).get(page, {}) if "." not in name],
    )
    up = "../" * page.count("/")
    context["body"] += (
        f'<p class="proof" role="note">{line} '
        f'<a href="{up}about/checked.html">What is checked, and how</a></p>'
    )


def read_proof(app: Sphinx) -> None:
    vars(app)["openreg_proof"] = proof.read_record()


def setup(app: Sphinx) -> dict[str, Any]:
    claims.proofs.cache_clear()
    app.add_role("claim", Claim())
    app.add_role("proven", Proven())
    app.connect("builder-inited", read_proof)
    app.connect("env-get-outdated", outdated)
    app.connect("env-purge-doc", forget_page)
    app.connect("env-merge-info", merge)
    app.connect("html-page-context", add_footer)
    return {"parallel_read_safe": True, "version": "1"}
