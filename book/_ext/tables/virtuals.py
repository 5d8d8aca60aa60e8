"""The interfaces that a backend derives from, read from PyTorch's headers."""

import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from regions import ROOT
from rows import rows
from tables.headers import end_of_braces

RUNTIME = ROOT / "backend" / "csrc" / "runtime"
READS = ("book/rows/interfaces.toml",)
INTERFACES = {row.name: row for row in rows("interfaces.interface")}


class Method(NamedTuple):
    signature: str  # without a class, a body or spaces that mean nothing
    default: str | None  # the body, "" where a .cpp has it, None: must be ours


def include_folder() -> Path:
    """Where the installed PyTorch has its headers; does not import it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "include"


def definition(text: str, name: str) -> re.Match[str] | None:
    """The beginning of a class; a mere declaration has no brace."""
    return re.search(
        rf"\b(?:struct|class)\s+(?:[A-Z]\w*_API\s+)?{name}\b[^;{{]*\{{", text
    )


STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def masked(code: str) -> str:
    """The same with nothing in its strings, so that braces can be counted."""
    return STRING.sub(lambda found: '"' + " " * (len(found[0]) - 2) + '"', code)


def class_body(text: str, name: str) -> str:
    """What stands between the braces of a class, without comments."""
    # A comment goes, a string that looks like one stays.
    text = re.sub(
        rf"({STRING.pattern})|/\*.*?\*/|//[^\n]*",
        lambda found: found[1] or "",
        text,
        flags=re.S,
    )
    text = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    head = definition(text, name)
    if head is None:
        raise ValueError(f"no header has a class {name} any more")
    return text[head.end() : end_of_braces(masked(text), head.end() - 1) - 1]


def members(body: str) -> Iterator[tuple[str, str | None]]:
    """(declaration, body or None) of each member of a class."""
    start, braces, parentheses, inner = 0, 0, 0, 0
    for i, char in enumerate(masked(body)):
        braces += {"{": 1, "}": -1}.get(char, 0)
        parentheses += {"(": 1, ")": -1}.get(char, 0)
        if braces == 1 and char == "{" and parentheses == 0:
            inner = i
        if braces or parentheses:
            continue
        if char == ";":
            yield body[start:i], None
            start = i + 1
        elif char == "}" and ")" in body[start:inner]:
            yield body[start:inner], body[inner + 1 : i]
            start = i + 1


@functools.cache
def virtual_methods(text: str, name: str) -> dict[str, Method]:
    """The methods of a class in a header that can be, or are, overridden."""
    found = {}
    for declared, body in members(class_body(text, name)):
        access = r"\b(?:public|private|protected):"
        flat = re.sub(rf"\[\[.*?\]\]|{access}", "", declared)
        flat = re.sub(r" (?=[,)])|(?<=\() ", "", " ".join(flat.split()))
        virtual = flat.startswith("virtual ") or flat.endswith(" override")
        if not virtual or "~" in flat:
            continue
        named = re.search(r"(\w+) ?\(", flat)
        assert named is not None, flat
        pure = flat.endswith("= 0")
        code = "" if body is None else " ".join(body.split()) or "{}"
        found[named[1]] = Method(
            re.sub(r"^virtual | override$| ?= 0$", "", flat),
            None if pure else code,
        )
    return found


def methods(
    key: str, include: Path | None = None, missing_ok: bool = False
) -> dict[str, Method]:
    """All methods of an interface, in the order of the headers.

    An older PyTorch may lack a header or a class.
    """
    found: dict[str, Method] = {}
    for header, name in map(str.split, INTERFACES[key].classes):
        path = (include or include_folder()) / header
        text = path.read_text("utf-8") if path.exists() else ""
        if missing_ok and not definition(text, name):
            continue
        found |= virtual_methods(text, name)
    return found


def overrides(key: str) -> dict[str, str]:
    """The methods that we override -> the file that does."""
    if INTERFACES[key].between:
        return {}  # our class only gives its base another cache
    path = RUNTIME / INTERFACES[key].ours
    text = path.read_text("utf-8")
    found = re.findall(
        r"(\w+)\((?:[^()]|\([^()]*\))*\)\s*(?:const\s*)?(?:noexcept\s*)?override",
        text,
    )
    return dict.fromkeys(
        (name for name in found if name in methods(key)), path.name
    )


def provided(key: str) -> set[str]:
    """The methods that a class of PyTorch between theirs and ours overrides."""
    interface = INTERFACES[key]
    if not interface.between:
        return set()
    header, _ = interface.classes[-1].split()
    text = (include_folder() / header).read_text("utf-8")
    return set(virtual_methods(text, interface.between))


def default(method: Method) -> str:
    """What comes of leaving a method out: its message where it raises."""
    body = method.default
    if body is None:
        return "does not compile"
    if not body:
        return "does what PyTorch's library has"
    if "FAIL_PRIVATEUSE1HOOKS_FUNC" in body:
        message = 'false, "You should register `PrivateUse1HooksInterface`..."'
        return f"raises {message[7:]}"
    if said := re.search(
        r"TORCH_CHECK\w*\(\s*false,\s*((?:\"[^\"]*\"[\s,]*)+)", body
    ):
        return 'raises "' + "".join(re.findall(r'"([^"]*)"', said[1])) + '"'
    if body == "{}":
        return "does nothing"
    answer = re.fullmatch(r"return ([\w-]+);", body)
    if answer:
        words = {"false": "says no", "nullptr": "has none"}
        return words.get(answer[1], f"says {answer[1]}")
    return "does what its header has"
