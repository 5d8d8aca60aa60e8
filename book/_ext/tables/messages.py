"""The tables of book/reference/errors.md: every message in our sources.

The messages are found in the sources themselves. What is to be said of each
is a row, once, so a message that nobody speaks of fails a test.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import regions
from regions import ROOT
from rows import Row, rows
from tables.common import said, table

READS = (
    *("*.py", "*.toml", "backend/**"),
    *("book/**/*.md", "book/_ext/**", "book/rows/*.toml"),
)

GAP = "…"  # what varies in a message
# A call that raises, warns or reports, and how many of its arguments come
# before the message.
RAISES = {
    "TORCH_CHECK": 1,
    "TORCH_CHECK_VALUE": 1,
    "TORCH_CHECK_NOT_IMPLEMENTED": 1,
    "TORCH_CHECK_WITH": 2,
    "TORCH_WARN": 0,
    "TORCH_WARN_ONCE": 0,
    "fail": 1,
    "AcceleratorError": 2,
    "refuse": 0,
    "snprintf": 2,
}
LITERAL = r'"(?:[^"\\]|\\.)*"'
CALL = re.compile(rf"\b({'|'.join(RAISES)})\(")


class Found(NamedTuple):
    file: str
    line: int
    text: str


def arguments(text: str, start: int) -> list[str]:
    """The arguments of a C++ call whose parenthesis opens before `start`."""
    parts, depth, begin = [], 1, start
    for token in re.finditer(
        rf"{LITERAL}|//[^\n]*|[()\[\]{{}},]", text[start:]
    ):
        char, at = token[0], start + token.start()
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if depth == 0 or (char == "," and depth == 1):
            parts.append(text[begin:at])
            begin = at + 1
        if depth == 0:
            break
    return parts


def of_argument(argument: str) -> str:
    """The text of one argument: literals as they are, the rest a gap."""
    bare = re.sub(r"//[^\n]*", "", argument)
    literals = re.findall(LITERAL, bare)
    if not literals or re.sub(rf"{LITERAL}|\s", "", bare):
        literals = [x for x in literals if len(x) > 20]
        if not literals:
            return GAP
    text = "".join(ast.literal_eval(literal) for literal in literals)
    return re.sub(r"%[a-z]+", GAP, text)


def in_cpp(file: str, text: str) -> Iterator[Found]:
    for call in CALL.finditer(text):
        parts = arguments(text, call.end())[RAISES[call[1]] :]
        texts = [*map(of_argument, parts)]
        if call[1] == "refuse":  # of a variable: its name, what is expected
            texts.insert(1, f" is '{GAP}'; expected ")
        message = "".join(texts)
        message = re.sub(rf"{GAP}+$|{GAP}(?={GAP})", GAP, message)
        if re.search(r"\w{3}.* ", message):
            line = text.count("\n", 0, call.start()) + 1
            yield Found(file, line, message.strip())


def of_node(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(of_node, node.values))
    if isinstance(node, ast.Lambda):
        return of_node(node.body)
    return GAP


def in_python(file: str, text: str) -> Iterator[Found]:
    for node in ast.walk(ast.parse(text)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = ast.unparse(call.func)
        if call is not node or name in ("torch._check", "warnings.warn"):
            message = of_node(call.args[name == "torch._check"])
            if re.search(r"\w{3}", message):
                yield Found(file, call.lineno, message)


def found(*folders: str) -> list[Found]:
    """The messages of the folders, or of all, in the order of the files."""
    messages: list[Found] = []
    for folder in folders or ("torch_openreg", "csrc", "device"):
        for path in sorted((ROOT / "backend" / folder).rglob("*.*")):
            file, find = path.relative_to(ROOT).as_posix(), None
            if path.suffix in (".cpp", ".h"):
                find = in_cpp
            elif path.suffix == ".py":
                find = in_python
            if find:
                messages += find(file, path.read_text("utf-8"))
    return messages


TOLD = rows("messages")


def told(message: Found) -> list[Row]:
    return [row for row in TOLD if row.says in message.text]


def places() -> dict[str, list[regions.Region]]:
    """File -> its regions: where the code of a message is explained."""
    found, _ = regions.find_regions(regions.read_sources())
    by_file: dict[str, list[regions.Region]] = {}
    for region in found:
        by_file.setdefault(region.file, []).append(region)
    return by_file


def messages_of(folder: str) -> str:
    """The messages of a folder, each with what is to be said of it."""
    here = [(message, told(message)) for message in found(folder)]
    shown = places()
    body = []
    for row in TOLD:
        mine = [message for message, known in here if row in known]
        if not mine:
            continue
        links = dict.fromkeys(
            f"[](#{region.name})"
            for m in mine
            for region in shown.get(m.file, [])
            if region.first <= m.line <= region.last
        )
        shows = [f"[](../{row.shown})"] if row.shown else []
        shows += ["not reproduced"] if row.untested else []
        texts = "<br>".join(dict.fromkeys(said(m.text) for m in mine))
        does = f"{row.why} *{row.do}*{row.mark}"
        body.append((texts, does, "<br>".join([*links, *shows])))
    return table(("Message", "Why, and *what to do*", "Code"), body)


def messages_missing() -> str:
    """What PyTorch says where a backend has left something out."""
    missing = [(row.symptom, row.what) for row in rows("checklist")]
    missing += [
        (row.without, f"device module: `{row.key}`") for row in rows("frontend")
    ]
    lacks: dict[str, list[str]] = {}
    for text, what in missing:
        if ": " in text:
            lacks.setdefault(text, []).append(what)
    return table(
        ("Message", "What is missing"),
        ((said(text), "; ".join(lacks[text])) for text in sorted(lacks)),
    )


ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Unsupported|Warning): \S.*$", re.M)


def on_pages() -> dict[str, list[str]]:
    """Message -> the pages whose examples run into it; none of our own."""
    shown: dict[str, list[str]] = {}
    for page, text in regions.read_pages().items():
        for fence in regions.find_fences(page, text):
            if fence.kind not in ("python", "console", "output"):
                continue
            for message in ERROR.findall(fence.body):
                if any(row.says in message for row in TOLD):
                    continue
                pages = shown.setdefault(message, [])
                if page not in pages:
                    pages.append(page)
    return shown


def messages_shown() -> str:
    """PyTorch's messages that an example of a chapter runs into."""

    def link(page: str) -> str:
        return f"[](../{page.removeprefix('book/')})"

    shown = sorted(on_pages().items())
    body = ((said(x), " ".join(map(link, pages))) for x, pages in shown)
    return table(("Message", "Example in"), body)
