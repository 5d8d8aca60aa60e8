"""References of C and C++, made from the comments of public headers.

A comment belongs to the declarations right below it; one that stands alone
introduces what follows. Nothing is told here that a header does not say.
"""

import re
from collections.abc import Iterator
from textwrap import indent
from typing import NamedTuple

from regions import ROOT
from tables.common import first_sentence, table

READS = (
    "backend/CMakeLists.txt",
    "backend/csrc/runtime/*.h",
    "backend/device/openreg.h",
)

BACKEND = ROOT / "backend"


def public_headers() -> list[str]:
    """The headers that an extension may include: CMake's own list."""
    cmake = (BACKEND / "CMakeLists.txt").read_text("utf-8")
    found = re.search(r"set\(public_headers\s+([^)]*)\)", cmake)
    assert found is not None
    return found[1].split()


def installed_name(header: str) -> str:
    """How an extension includes a header."""
    return f"openreg/{header.removeprefix('csrc/')}"


# What exports a function is no part of the reference, nor is its comment.
DEFINE = re.compile(r"#define \w+ __attribute__")


class Entry(NamedTuple):
    comment: str
    declared: list[str]  # empty where the comment stands alone


SKIP = re.compile(
    r"#(?:pragma|include|if|ifn?def|endif)|extern \"C\"|namespace |"
    r"}$|}  // namespace|#define OPENREG_H|" + DEFINE.pattern
)


def end_of_braces(text: str, start: int) -> int:
    """The index behind the brace that closes the first one after start."""
    depth = 0
    for i in range(text.index("{", start), len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError(f"unbalanced braces in {text[start : start + 60]!r}")


def without_bodies(code: str) -> str:
    """Functions as they would be declared, of a class what is public."""
    code = re.sub(r"\n+ private:.*(?=\n\};)", "", code, flags=re.S)
    code = re.sub(r"\) (?:const |noexcept |override )*:.*?(?= \{)", ")", code)
    code = re.sub(r"\)\n\s+: .*?(?= \{)", ")", code, flags=re.S)
    while found := re.search(r"\)(?: const| noexcept| override)* (?=\{)", code):
        end = end_of_braces(code, found.end())
        code = f"{code[: found.end() - 1]};{code[end:]}"
    return code


OFFERED = re.compile(
    r"(?:\[\[\w+\]\] )?OPENREG_(?:EXPORT|API) |"  # the library has it, or
    r"inline |template |class |struct |enum |typedef "  # the header itself
)


def declarations(code: str) -> list[str]:
    """What a piece of code offers, each declaration without its body."""
    code = code.strip()
    if code.startswith("#define"):
        name = re.match(r"#define (\w+(?:\([^)]*\))?)", code)
        assert name is not None
        return [f"#define {name[1]}"]
    found, start, depth = [], 0, 0
    code = without_bodies(code)
    for i, char in enumerate(code):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == ";" and depth == 0:
            found.append(code[start : i + 1].strip())
            start = i + 1
    assert not code[start:].strip(), code[start:]
    return [
        re.sub("OPENREG_(?:EXPORT|API) |C10_ALWAYS_INLINE ", "", declared)
        for declared in found
        if OFFERED.match(declared)
    ]


COMMENT = re.compile(r"^(?://[^\n]*\n|/\*.*?\*/[ \t]*\n)", re.S)
MARKER = re.compile(r"\[/?[a-z0-9]+(?:-[a-z0-9]+)+\] ?")


def comment_text(comment: str) -> str:
    comment = comment.replace("*/", "")
    comment = re.sub(r"^(?:// ?|/\* ?| \* ?)", "", comment, flags=re.M)
    paragraphs = re.split(r"\n\s*\n", MARKER.sub("", comment))
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).strip()


def entries(text: str) -> Iterator[Entry]:
    """What a header says, in its order."""
    said: list[str] = []
    while text:
        if found := COMMENT.match(text):
            said.append(comment_text(found[0]))
            text = text[found.end() :]
            continue
        line, _, rest = text.partition("\n")
        if not line.strip() or SKIP.match(line):
            if (comment := " ".join(filter(None, said))) and not DEFINE.match(
                line
            ):
                yield Entry(comment, [])
            said, text = [], rest
            continue
        if line.startswith("#define"):
            end = re.search(r"(?<!\\)\n", text)
        else:
            # Up to a blank line or the next comment, outside all braces.
            end = re.search(r";\n(?=\n|//|/\*|\Z)|^\}.*\n(?=\n|//)", text, re.M)
        assert end is not None, line
        code = text[: end.end()]
        while code.count("{") > code.count("}"):
            end = re.compile(r"^.*\}.*\n", re.M).search(text, len(code))
            assert end is not None, line
            code = text[: end.end()]
        if declared := declarations(code):
            yield Entry(" ".join(filter(None, said)), declared)
        said, text = [], text[len(code) :]


WORDS = re.compile(
    r"(?P<code>`[^`]*`)|(?P<star>(?<!_)\*)|"
    r"(?P<name>(?<![\w\"-])(?:or[A-Z]\w*|cu(?:da)?[A-Z]\w+|c10::\w+|NULL|"
    r"[A-Za-z]\w*_(?:\w+|\*)(?:=\w+)?)(?:\((?:[^()]|\([^()]*\))*\)|\.so)?(?![\w\"(]))"
)


def as_prose(comment: str) -> str:
    """Names of code, as reStructuredText's default role shows them."""

    def mark(found: re.Match[str]) -> str:
        if found["name"]:
            return f"`{found[0]}`"
        return "\\*" if found["star"] else found[0]

    return WORDS.sub(mark, comment)


def directive(declared: str) -> tuple[str, str]:
    """Sphinx's directive for a declaration, and what to show below it."""
    flat = " ".join(declared.rstrip(";").split()).replace("( ", "(")
    flat = flat.removeprefix("inline ").removeprefix("extern ")
    if flat.startswith("#define"):
        return f"c:macro:: {flat.removeprefix('#define ')}", ""
    if "{" in flat:
        found = re.match(
            r"(typedef )?(struct|class|enum(?: class)?) *(\w*)", flat
        )
        assert found is not None, flat
        if not found[3]:  # constants
            return "", declared
        kind = found[2].replace(" ", "-")
        return f"{'c' if found[1] else 'cpp'}:{kind}:: {found[3]}", declared
    if flat.startswith("typedef"):
        return f"c:type:: {flat.removeprefix('typedef ')}", ""
    kind = "function" if "(" in flat else "var"
    domain = "c" if re.search(r"\bor[A-Z]\w+\(", flat) else "cpp"
    return f"{domain}:{kind}:: {flat}", ""


def render(entry: Entry) -> str:
    """An entry as reStructuredText."""
    said, _, twin = entry.comment.partition("Twin: ")
    said = as_prose(said)
    if twin:
        name, _, differs = as_prose(twin).partition(" Differs: ")
        said += f"\n\n*Twin:* {name.rstrip('.')}."
        said += f" *Differs:* {differs}" if differs else ""
    parts = [directive(declared) for declared in entry.declared]
    lines = []
    for number, (head, code) in enumerate(parts):
        below = f".. code-block:: cpp\n\n{indent(code, '   ')}" if code else ""
        if number == len(parts) - 1:
            below = f"{said}\n\n{below}"
        # Declarations that share a comment stand above it, one by one.
        lines.append(f".. {head}\n\n{indent(below, '   ')}" if head else below)
    return "\n\n".join(lines or [said])


def reference(header: str) -> str:
    """All that a header declares, with what its comments say."""
    text = (BACKEND / header).read_text("utf-8")
    body = "\n\n".join(map(render, entries(text)))
    space = "openreg" if "namespace openreg" in text else "NULL"
    return (
        f"```{{eval-rst}}\n.. cpp:namespace:: {space}\n\n{body}\n"
        f"\n.. cpp:namespace:: NULL\n```"
    )


def cpp_headers() -> str:
    """The public headers, and what each one is about."""

    def row(header: str) -> tuple[str, ...]:
        text = (BACKEND / header).read_text("utf-8")
        about = next(e.comment for e in entries(text) if not e.declared)
        about = first_sentence(about.split("\n\n")[0])
        return f"`<{installed_name(header)}>`", as_prose(about)

    return table(("Include", "What it has"), map(row, public_headers()))
