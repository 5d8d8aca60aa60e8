"""Names of the port: each is used, and the recipe spares what must stay."""

import re

import pytest

from tables import port


@pytest.mark.parametrize("name", port.NAMES, ids=lambda name: name.here)
def test_a_name_is_used_where_the_table_says(name: port.Name) -> None:
    found = port.users(name.pattern)
    assert found
    text = port.tree()[name.first]
    assert re.search(name.pattern, text) or name.first.endswith(name.here)


def test_every_name_is_one_of_the_three_spellings() -> None:
    """So the recipe's sed changes all of them."""
    for name in port.NAMES:
        assert re.search("openreg|OPENREG|OpenReg", name.here)
    spelt = {
        w for t in port.tree().values() for w in re.findall("openreg", t, re.I)
    }
    assert spelt == {"openreg", "OPENREG", "OpenReg"}


def test_what_must_stay_is_not_touched_by_the_recipe() -> None:
    for pattern in port.FIXED:
        words = {
            word
            for text in port.tree().values()
            for word in re.findall(pattern, text)
        }
        assert words
        mixed = {word for word in words if "openreg" in word.lower()}
        assert mixed == set(), f"{pattern} matches {mixed}"
