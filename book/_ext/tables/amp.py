"""The table of book/chapters/amp.md."""

import re

from tables.common import code, of_rows
from tables.virtuals import include_folder


def policy_operators(macro: str) -> list[str]:
    """The operators of a policy's list, read from PyTorch's header."""
    header = include_folder() / "ATen/autocast_mode.h"
    text = header.read_text("utf-8").replace("\\\n", " ")
    found = re.search(rf"#define {macro}\(_\)(.*)", text)
    assert found, macro
    if "ADD_NS" in found[1]:
        return re.findall(r'"([\w.]+)"', found[1])
    names = re.findall(r"_\((\w+)(?:, (\w+))?\)", found[1])
    return [f"{name}.{over}" if over else name for name, over in names]


def autocast_policies() -> str:
    """Each cast policy with every operator that PyTorch lists for it."""
    return of_rows(
        "amp.policies", operators=lambda row: code(policy_operators(row.macro))
    )
