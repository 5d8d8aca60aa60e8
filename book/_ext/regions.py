"""Regions of source files and fences of pages, read without Sphinx.

A region is what a listing shows: the lines between two comments,
`[name] Sentence that is the caption.` and `[/name]`. The rules that keep
listings true are in `check`, which takes texts and answers with sentences.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from posixpath import dirname, relpath

from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 40

# Where regions may stand.
SOURCES = (
    "pyproject.toml",
    "backend/CMakeLists.txt",
    "backend/examples/*/CMakeLists.txt",
    *(
        f"backend/{folder}/**/*{suffix}"
        for folder in ("device", "csrc", "torch_openreg", "examples")
        for suffix in (".c", ".cpp", ".h", ".py")
    ),
)


MARKER = re.compile(
    r"^\s*(?://|\#|/\*)\s*"
    r"\[(?P<end>/?)(?P<name>[a-z0-9]+(?:-[a-z0-9]+)+)\]"
    r"\s*(?P<caption>.*?)\s*(?:\*/)?\s*$"
)

# The two options by which a listing names its region.
MARKERS = re.compile(
    r'^:start-after: "\[(?P<name>.+)\]"\n:end-before: "\[/(?P=name)\]"$', re.M
)

# What a fence may be, and what proves it.
KINDS = {
    "python": "pytest runs it",
    "output": "compared with what the python fence above it printed",
    "console": "bash runs it in a clean folder; the output is compared",
    "text": "nothing, so it holds no prompt",
    "md": "nothing: how a page is written, in book/about only",
    "{literalinclude}": "the region's file is compiled and tested",
    "{pytorch}": "found by its text in the installed PyTorch",
    "{generated}": "made from the real package by book/_ext/tables",
    "{drawing}": "an SVG of book/_static, or one that a run has drawn",
    "{eval-rst}": "autodoc of the real package, nothing else",
    "{toctree}": "sphinx -n -W",
    "{include}": "sphinx -n -W; a part of README.md",
    "{glossary}": "sphinx -n -W",
    "{index}": "words that the search finds here first",
    "{silent}": "a claim in it, a :test:, or an example that is :shown:",
}
# Directives that hold Markdown, whose fences count like any other.
CONTAINERS = {"{container}", "{tabs}", "{tab}", "{group-tab}"}

# Elements of HTML but the two that fold an answer; and what is code in a line.
HTML = re.compile(r"<(?!/?(?:details|summary)\b|https?:)/?[a-z][\w-]*", re.I)
CODE = re.compile(r"(`+).+?(?<!`)\1(?!`)|^:[\w-]+: .*")


@dataclass(frozen=True)
class Region:
    name: str
    file: str
    first: int  # the number of the first line between the markers
    caption: str
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True)
class Fence:
    page: str
    line: int  # of the opening fence
    kind: str  # "python", "{listing}" ...
    argument: str  # what follows the kind
    body: str
    end: int  # of the closing fence

    @property
    def region(self) -> str:
        """What a listing shows, if both of its markers name the same."""
        listing = self.kind == "{literalinclude}"
        markers = MARKERS.search(self.body) if listing else None
        return markers["name"] if markers else ""


def read(patterns: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Path below root -> text, for every file that a pattern names."""
    paths = {path for pattern in patterns for path in root.glob(pattern)}
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted(paths)
    }


def read_sources(root: Path = ROOT) -> dict[str, str]:
    return read(SOURCES, root)


def read_pages(root: Path = ROOT) -> dict[str, str]:
    return read(("book/**/*.md",), root)


def docname(file: str) -> str:
    """What Sphinx calls a page."""
    return file.removeprefix("book/").removesuffix(".md")


def toctree() -> list[str]:
    """The pages of the menu, in its order."""
    fences = find_fences("book/index.md", read_pages()["book/index.md"])
    trees = "\n".join(x.body for x in fences if x.kind == "{toctree}")
    return re.findall(r"^[\w./-]+$", trees, re.M)


def prefix(file: str) -> str:
    """What the names of a file's regions begin with."""
    path = Path(file)
    if file.startswith("backend/device/"):
        return "dev-"
    if file == "backend/CMakeLists.txt":
        return "cmake-"
    if path.suffix == ".py":
        return "py-"
    return path.stem.lower().replace("_", "-") + "-"


def find_regions(sources: Mapping[str, str]) -> tuple[list[Region], list[str]]:
    """All regions of the sources, and the markers that have no partner."""
    regions: list[Region] = []
    wrong: list[str] = []
    for file, text in sources.items():
        lines = text.splitlines()
        found = [(n, MARKER.match(line)) for n, line in enumerate(lines, 1)]
        marks = [(n, mark) for n, mark in found if mark]
        names = [mark["end"] + mark["name"] for _, mark in marks]
        for i in range(0, len(marks), 2):
            first, mark = marks[i]
            if names[i + 1 : i + 2] != [f"/{names[i]}"]:
                wrong.append(
                    f"{file}:{first}: the marker after [{names[i]}] is not "
                    f"its end; regions do not nest"
                )
                break
            # The formatter leaves a blank line before some ends.
            body = "\n".join(lines[first : marks[i + 1][0] - 1]).rstrip()
            shown = tuple(body.split("\n"))
            regions.append(
                Region(mark["name"], file, first + 1, mark["caption"], shown)
            )
    return regions, wrong


def markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    return parser.use(front_matter_plugin).use(colon_fence_plugin)


def find_fences(page: str, text: str, above: int = 0) -> Iterator[Fence]:
    """The fences of a page in order, also those inside tabs and notes.

    `above` is the number of lines that stand before `text` on the page.
    """
    for token in markdown().parse(text):
        if token.type not in ("fence", "colon_fence", "code_block"):
            continue
        kind, _, argument = token.info.strip().partition(" ")
        if token.type == "code_block":
            kind = "(indented)"
        first, past = token.map or (0, 0)  # which a fence always has
        line = above + first + 1
        if kind in CONTAINERS:
            yield from find_fences(page, token.content, line)
        else:
            end = above + past
            yield Fence(page, line, kind, argument.strip(), token.content, end)


def check(sources: Mapping[str, str], pages: Mapping[str, str]) -> list[str]:
    """Every broken rule of regions and fences, as a sentence with its place."""
    regions, wrong = find_regions(sources)
    fences = [
        f for page, text in pages.items() for f in find_fences(page, text)
    ]
    wrong += check_regions(regions)
    wrong += [f"{f.page}:{f.line}: {w}" for f in fences for w in check_fence(f)]
    wrong += check_outputs(fences)
    wrong += check_uses(regions, fences)
    for page, text in pages.items():
        wrong += check_prompts(page, text)
        wrong += check_html(page, text)
    return wrong


def check_regions(regions: list[Region]) -> Iterator[str]:
    seen: dict[str, Region] = {}
    for region in regions:
        where = f"{region.file}:{region.first - 1}: [{region.name}]"
        other = seen.setdefault(region.name, region)
        if other is not region:
            place = f"{other.file}:{other.first - 1}"
            yield f"{where} is already at {place}; rename one"
        if not region.name.startswith(prefix(region.file)):
            yield f"{where} must begin with {prefix(region.file)!r}"
        if not region.caption.endswith((".", "?", "!")):
            yield f"{where} needs a sentence after it, the listing's caption"
        if not any(line.strip() for line in region.lines):
            yield f"{where} is empty"
        if len(region.lines) > LINES_MAX:
            yield f"{where} has {len(region.lines)} lines; at most {LINES_MAX}"


def check_fence(fence: Fence) -> Iterator[str]:
    if fence.kind not in KINDS:
        known = ", ".join([*KINDS, *sorted(CONTAINERS)])
        yield (
            f"unknown kind of fence {fence.kind!r}; known are {known}, and "
            f"code is not typed into a page but shown by literalinclude"
        )
    elif not fence.kind.startswith("{") and fence.argument:
        yield f"{fence.argument!r} after {fence.kind} means nothing"
    if fence.kind == "md" and not fence.page.startswith("book/about/"):
        yield "md fences stand in book/about only: they are not run"
    if fence.kind == "text" and re.search(r"^\s*(>>>|\$) ", fence.body, re.M):
        yield "a text fence is not run: write a prompt in python or console"
    if fence.kind == "console" and not fence.body.startswith("$ "):
        yield "a console fence begins with a command, '$ ' before it"
    if fence.kind == "python" and re.search(r"doctest: *\+SKIP", fence.body):
        yield "no example is skipped: write ... for what varies"
    if fence.kind == "{eval-rst}" and re.search(
        r"^(?!\.\. auto|\.\. currentmodule|   :|\s*$)", fence.body, re.M
    ):
        yield "eval-rst is for autodoc directives; write all else in Markdown"


def check_outputs(fences: list[Fence]) -> Iterator[str]:
    """An output belongs to the python fence whose end is right above it."""
    before: Fence | None = None
    for fence in fences:
        if fence.kind == "output" and not follows(fence, before):
            yield (
                f"{fence.page}:{fence.line}: output stands right below the "
                f"python fence, without prompts, that prints it"
            )
        before = fence


def follows(output: Fence, before: Fence | None) -> bool:
    return (
        before is not None
        and before.kind == "python"
        and not before.body.startswith(">>>")
        and before.page == output.page
        and output.line - before.end <= 2
    )


def check_uses(regions: list[Region], fences: list[Fence]) -> Iterator[str]:
    """Every region is shown, and once; that there is one, the listing asks."""
    count = Counter(fence.region for fence in fences)
    for region in regions:
        if count[region.name] != 1:
            yield (
                f"{region.file}:{region.first - 1}: [{region.name}] is shown "
                f"{count[region.name]} times; show it once and link to it, as "
                f"[text](#{region.name}), or remove its markers"
            )


def scan(text: str) -> Iterator[tuple[int, str, str]]:
    """Each line but those inside of fences, found without the parser.

    With its number, and with the kind of the fence that opens there, or "".
    """
    closing = ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"(?:[\s>*+-]|\d+\.)*(`{3,}|~{3,}|:{3,})\s*(.*)", line)
        if closing:
            if fence and fence[1].startswith(closing) and not fence[2]:
                closing = ""
        elif fence and fence[2] and not fence[2].startswith("{"):
            closing = fence[1]
            yield number, line, fence[2].split()[0]
        else:
            yield number, line, ""


def count_examples(text: str) -> int:
    return sum(kind in ("python", "console") for _, _, kind in scan(text))


def check_prompts(page: str, text: str) -> Iterator[str]:
    for number, line, kind in scan(text):
        if not kind and re.search(r">>> \S", line):
            yield f"{page}:{number}: >>> runs in a python fence, not here"


def check_html(page: str, text: str) -> Iterator[str]:
    """What is typed as HTML, code above all, gets past every other rule."""
    for number, line, kind in scan(text):
        if not kind and (tag := HTML.search(CODE.sub("", line))):
            yield f"{page}:{number}: {tag[0]} is HTML: write Markdown"


def pages_of(pages: Mapping[str, str]) -> dict[str, str]:
    """Region -> the page that shows it."""
    return {
        fence.region: page
        for page, text in pages.items()
        for fence in find_fences(page, text)
        if fence.region
    }


def relocate(page: str, text: str, files: Mapping[str, str]) -> str:
    """The page with the path of each listing's file as it is now."""
    lines = text.splitlines(keepends=True)
    for fence in find_fences(page, text):
        if file := files.get(fence.region):
            path = relpath(file, dirname(page))
            opening = lines[fence.line - 1]
            lines[fence.line - 1] = opening.replace(fence.argument, path)
    return "".join(lines)


def main() -> None:
    """What `nox -s format` does to pages when a file has moved."""
    files = {r.name: r.file for r in find_regions(read_sources())[0]}
    for page, text in read_pages().items():
        if (now := relocate(page, text, files)) != text:
            (ROOT / page).write_text(now)


if __name__ == "__main__":
    main()
