"""Callouts for what fails silently, which one table lists.

A fence `{silent}` has after its name what one sees, and in it why. A `{claim}`
there, or `:test:` with the name of a claim or a row, says which tests prove it;
`:shown:` has a text of an example of the page which meets it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from docutils import nodes
from docutils.parsers.rst.directives import unchanged_required as required
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import claims
import footer
import listing
import regions

OPTION = re.compile(r"^:(test|shown): (.*)\n", re.M)


class Failure(NamedTuple):
    page: str
    symptom: str
    cause: str
    tests: list[str]  # names of claims and rows
    shown: str


def find(pages: Mapping[str, str]) -> Iterator[Failure]:
    for page, text in pages.items():
        for fence in regions.find_fences(page, text):
            if fence.kind == "{silent}":
                given = dict(OPTION.findall(fence.body))
                cause = " ".join(OPTION.sub("", fence.body).split())
                named = given.get("test", "").split()
                tests = claims.ROLE.findall(cause) + named
                cause = claims.ROLE.sub("", cause).strip()
                shown = given.get("shown", "")
                yield Failure(page, fence.argument, cause, tests, shown)


def anchor(symptom: str) -> str:
    return str(nodes.make_id(f"silent {symptom}"))


class Silent(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"test": required, "shown": required}

    def run(self) -> list[nodes.Node]:
        symptom, name = self.arguments[0], anchor(self.arguments[0])
        says, _ = self.parse_inline(f"Fails silently: {symptom}")
        # No title: the search would take it for that of a section.
        head = nodes.paragraph("", "", *says, classes=["admonition-title"])
        box = nodes.admonition(ids=[name], classes=["silent", "warning"])
        box += [head, *self.parse_content_to_nodes()]
        for test in self.options.get("test", "").split():
            link = footer.marks(self.env, test)
            box[-1] += nodes.raw("", link, format="html")
        listing.label(self.env, name, symptom.replace("`", ""))
        return [box]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("silent", Silent)
    return {"parallel_read_safe": True, "version": "1"}
