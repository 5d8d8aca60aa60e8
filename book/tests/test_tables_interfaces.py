"""PyTorch's interfaces: read whole, and each method spoken of."""

import re

import pytest
from _pages import samples, text_of

import regions
from rows import rows
from tables import interfaces, virtuals

HEADER = text_of("interface.h")


def test_a_header_is_read_as_the_compiler_reads_it() -> None:
    found = virtuals.virtual_methods(HEADER, "Iface")
    answers = {name: virtuals.default(m) for name, m in found.items()}
    assert answers == samples("headers")["interface"]
    assert found["must"].signature == "bool must(int a = -1) const"
    assert found["nothing"].signature == "void nothing(void*)"
    with pytest.raises(ValueError, match="no header has a class Gone"):
        virtuals.virtual_methods(HEADER, "Gone")


@pytest.mark.parametrize("key", virtuals.INTERFACES)
def test_every_method_of_the_headers_is_spoken_of(key: str) -> None:
    declared = virtuals.methods(key).keys()
    said = {row.key for row in interfaces.said(key) if row.installed}
    assert not declared - said, "say something about these"
    assert not said - declared, "PyTorch has these no more"


@pytest.mark.parametrize("key", virtuals.INTERFACES)
def test_what_must_be_written_is(key: str) -> None:
    must = {n for n, m in virtuals.methods(key).items() if m.default is None}
    assert must <= set(virtuals.overrides(key)) | virtuals.provided(key)


def test_every_macro_that_registers_is_one_of_pytorchs() -> None:
    used = interfaces.macros_used("csrc", "examples")
    assert used.keys() == interfaces.MACROS.keys()
    for name in interfaces.MACROS:
        assert interfaces.macro(name).startswith(f"{name}("), name


@pytest.mark.parametrize("key", ["hooks", "guard", "generator"])
def test_a_row_leads_to_its_override(key: str) -> None:
    found, _ = regions.find_regions(regions.read_sources())
    lines = {region.name: "\n".join(region.lines) for region in found}
    for row in filter(lambda row: row.region, interfaces.said(key)):
        override = rf"\b{row.key}\([^()]*\)[^;{{]*override"
        assert re.search(override, lines[row.region]), row.key


def test_what_must_be_written_is_counted_as_the_pages_say() -> None:
    guard, generator = map(virtuals.methods, ("guard", "generator"))
    must = {name for name, m in guard.items() if m.default is None}
    assert (len(must), len(guard)) == (8, 24)
    assert {"exchangeDevice", "deviceCount", "exchangeStream"} < must
    optional = {n for n, m in generator.items() if m.default is not None}
    later = {
        row.key for row in rows("generator") if row.since and row.installed
    }
    assert optional == {"graphsafe_get_state", "graphsafe_set_state"} | later


def test_the_guards_page_shows_each_default_as_the_toy_meets_it() -> None:
    page = (regions.ROOT / "book" / "chapters" / "guard.md").read_text()
    for name, method in virtuals.methods("guard").items():
        if method.default is not None:
            _, *message = virtuals.default(method).split('"')
            said = message[0] if message else "no error"
            assert f"\n{name}: {said}\n" in page


def test_the_tables_of_the_hooks_part_the_interface() -> None:
    header, name = virtuals.INTERFACES["hooks"].classes[0].split()
    text = (virtuals.include_folder() / header).read_text("utf-8")
    own = set(virtuals.methods("hooks")) - set(
        virtuals.virtual_methods(text, name)
    )
    assert {row.key for row in rows("hooks.own")} == own
