"""Shows on the page what proves it: a claim's tests, and what the last run did.

`{claim}` marks a sentence that tests prove; pressing the mark names them.
`{proven}` marks a row of a table, and leads to its test. The foot of each page
says what a full run of the tests has run of it.
"""

from collections.abc import Iterator
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


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")


class Claim(SphinxRole):
    """A small button, and a box with the tests that it opens."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, anchor = self.text, f"claim-{self.text}"
        note(self.env, name)
        rows = "".join(
            f'<a href="{address}"><code>{test}</code></a>'
            for test, address in proofs(self.env, name)
        )
        # A box within a paragraph can hold no list.
        html = (
            f'<button type="button" class="claim" popovertarget="{anchor}-by" '
            f'title="Which tests prove this?">proven</button>'
            f'<span popover id="{anchor}-by" class="claim-tests">'
            f"<b>{escape(name)}</b> is proven by {rows}</span>"
        )
        listing.label(self.env, anchor, name)
        # Names of tests would be a tenth of the words that are searched.
        mark = nodes.inline("", "", ids=[anchor], classes=["no-search"])
        mark += nodes.raw("", html, format="html")
        return [mark], []


class Proven(SphinxRole):
    """A small link at a row, to the test that proves it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        note(self.env, self.text)
        html = (
            f'<span id="claim-{self.text}">{marks(self.env, self.text)}</span>'
        )
        return [nodes.raw("", html, format="html")], []


def note(env: BuildEnvironment, name: str) -> None:
    """That this page has the claim or row, to which its tests lead back."""
    env.metadata[env.docname].setdefault("claims", {})[name] = True


def marks(env: BuildEnvironment, name: str) -> str:
    return " ".join(
        f'<a class="proven" href="{address}" '
        f'aria-label="Proven by {test.name}" title="{test}">✓</a>'
        for test, address in proofs(env, name)
    )


def proofs(
    env: BuildEnvironment, name: str
) -> Iterator[tuple[claims.Test, str]]:
    """The tests of a claim or a row, each with its address from this page."""
    up = "../" * env.docname.count("/")
    for test in claims.proofs().get(name, []):
        env.note_dependency(str(regions.ROOT / test.file))
        page = listing.source_page(test.file)
        yield test, f"{up}{page}.html#L-{test.line}"


def summary(
    record: dict[str, Any] | None,
    page: str,
    shown: list[regions.Region],
    made: list[str],
) -> str:
    """What the last full run says of a page; nothing if it was another tree."""
    if record is None:
        return ""
    parts = []
    if shown:
        ran = [record["regions"][region.name] for region in shown]
        files = plural(len({region.file for region in shown}), "file")
        lines = plural(sum(filter(None, ran)), "line")
        of = f"{plural(len(shown), 'listing')} of {files}"
        parts.append(f"{of}, whose {lines} of code all ran")
        if silent := sum(not lines for lines in ran):
            parts.append(f"{silent} of them without a line that can run")
    if examples := record["examples"].get(page):
        parts.append(f"{plural(examples, 'example')} run and compared")
    if made:
        tests = plural(sum(len(record["claims"][x]) for x in made), "test")
        parts.append(f"{plural(len(made), 'claim')} with {tests}")
    taken = record["commit"], record["date"]
    parts.append(", ".join([f"torch {record['torch']}", *taken]))
    return "Checked: " + "; ".join(parts) + "."


def add_footer(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    if page not in app.env.found_docs or "body" not in context:
        return
    about = app.env.metadata[page]
    context["proof"] = summary(
        vars(app)["openreg_proof"],
        f"book/{page}.md",
        about.get("listings", []),
        [x for x in about.get("claims", ()) if "." not in x],
    )


def read_proof(app: Sphinx) -> None:
    vars(app)["openreg_proof"] = proof.read_record()


def setup(app: Sphinx) -> dict[str, Any]:
    claims.proofs.cache_clear()
    app.add_role("claim", Claim())
    app.add_role("proven", Proven())
    app.connect("builder-inited", read_proof)
    app.connect("html-page-context", add_footer)
    return {"parallel_read_safe": True, "version": "1"}
