"""The references of C and C++: all that the headers offer, as they say it."""

import re
from pathlib import Path

import pytest
from _pages import samples, text_of

import regions
import torch_openreg
from tables import headers

BACKEND = regions.ROOT / "backend"
EXPORTED = (BACKEND / "tests" / "exported_symbols.txt").read_text()

HEADER = text_of("header.h")


def test_a_header_is_read_with_its_comments() -> None:
    found = [[x.comment, x.declared] for x in headers.entries(HEADER)]
    assert found == samples("headers")["header"]


def test_names_of_code_are_marked_and_stars_are_stars() -> None:
    assert headers.as_prose(
        "orFree or an or* call of `x_y` at *p, say -1_"
    ) == ("`orFree` or an or\\* call of `x_y` at \\*p, say -1_")


@pytest.mark.parametrize("header", headers.public_headers())
def test_everything_that_is_offered_says_what_it_is(header: str) -> None:
    """All of C does, and functions and macros; a class may for itself."""
    text = (BACKEND / header).read_text()
    found = list(headers.entries(text))
    for entry in found:
        for declared in entry.declared:
            head, _ = headers.directive(declared)
            assert entry.comment or not re.match(r"c:|\w+:[fm]", head), declared
    # Whatever is marked for export has been found, and each type of C.
    marks = re.findall(r"^(?:\S+ )?OPENREG_(?:EXPORT|API) ", text, re.M)
    types = re.findall(r"^(?:typedef|\}) .*?\b(or\w+)\)?(?:\(.*)?;", text, re.M)
    offered = [d for entry in found for d in entry.declared]
    assert len(offered) >= max(len(marks), 1), offered
    assert set(types) <= set(re.findall(r"\w+", " ".join(offered))), types


@pytest.mark.parametrize("header", headers.public_headers())
def test_what_a_header_declares_the_library_exports(header: str) -> None:
    for entry in headers.entries((BACKEND / header).read_text()):
        for declared in entry.declared:
            name = re.search(r"(\w+)\(", declared)
            if name is None or re.match(
                r"#|inline|template|typedef|struct|class|enum", declared
            ):
                continue
            symbol = rf"^(?:openreg::)?{name[1]}(?:\(|$)"
            assert re.search(symbol, EXPORTED, re.M), declared


def test_the_public_headers_are_installed_under_a_name_of_their_own() -> None:
    ours, _ = torch_openreg.cmake_prefix_path.split(";")
    folder = Path(ours).parents[1] / "include"
    installed = {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*.h")
    }
    names = {headers.installed_name(h): h for h in headers.public_headers()}
    assert installed.keys() == names.keys()
    for name, text in installed.items():
        own = re.findall(r'#include "(.+)"', text)
        assert set(own) <= names.keys(), "an include that is not installed"
        source = (BACKEND / names[name]).read_text()
        source = re.sub(r'#include "(?:csrc/)?', '#include "openreg/', source)
        assert text == source


def test_every_public_header_is_on_a_page() -> None:
    pages = "".join(regions.read_pages().values())
    for header in headers.public_headers():
        assert f"```{{generated}} headers.reference {header}\n" in pages
        assert f"`<{headers.installed_name(header)}>`" in headers.cpp_headers()
