"""Makes the repository of a device of your own from this book's sources.

What it writes is cut from files that are tested here, as parts.toml says; the
folder package has what is new. The result lies on the branch `generated` of
the new repository. Run again, it commits there what has changed since, and
`git merge generated` brings that to you. With --step it goes on: steps.toml
says what each step changes in the files of the one before, and each is a
commit of its own.
"""

from __future__ import annotations

import argparse
import keyword
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".ci"))
import releases  # noqa: E402

PARTS = Path(__file__).parent / "parts.toml"
STEPS = Path(__file__).parent / "steps.toml"
BRANCH = "generated"
OPTIONS = ("prefix", "author", "licence", "book", "step", "torch")
FIRST = "none"  # what stands for a step where none has been taken

# Names that PyTorch, C++ or this book's own device has already.
TAKEN = re.compile(
    "cpu|cuda|mkldnn|opengl|opencl|ideep|hip|fpga|maia|xla|vulkan|metal|xpu|"
    "mps|meta|hpu|ve|lazy|ipu|mtia|privateuseone|openreg|torch|aten|at|c10|"
    "std|auto|bool|char|const|delete|double|enum|explicit|export|extern|float|"
    "goto|inline|int|long|namespace|new|operator|private|protected|public|"
    "register|short|signed|static|struct|switch|template|this|throw|typedef|"
    "union|unsigned|using|virtual|void|volatile"
)


class Refused(Exception):
    """What was wrong, what was expected, and what to do."""


# A place in a file: a region "[name]", one line that has a text, or the lines
# from one that has a text to the next that has another.
Place = str | list[str]


def find(lines: list[str], place: Place) -> tuple[int, int]:
    """The first line of a place, and the line after its last."""
    if isinstance(place, str):
        region = re.fullmatch(r"\[([\w-]+)\]", place)
        place = [place, f"[/{region[1]}]"] if region else [place, place]
    first, last = place
    more = first.count("\n") + 1  # a first line may need the next to be known
    starts = ("\n".join(lines[i : i + more]) for i in range(len(lines)))
    begins = [i for i, start in enumerate(starts) if first in start]
    if len(begins) != 1:
        raise Refused(f"{first!r} is in {len(begins)} lines, not in one")
    closes = not last.strip(" };")  # a brace that ends what begins there
    for end in range(begins[0], len(lines)):
        if lines[end] == last if closes else last in lines[end]:
            return begins[0], end + 1
    raise Refused(f"no line with {last!r} follows {first!r}")


def cut(part: dict[str, Any], before: str, by: str) -> str:
    """A part of a source file, or of the step before, changed as is asked."""
    source = part.get("from")
    text = (ROOT / source).read_text("utf-8") if source else before
    lines = text.splitlines()
    try:
        for place in part.get("drop", ()):
            first, end = find(lines, place)
            del lines[first:end]
        if "take" in part:
            spans = [find(lines, place) for place in part["take"]]
            lines = [x for first, end in spans for x in [*lines[first:end], ""]]
        text = "\n".join(lines) + "\n"
        for old, new in part.get("change", ()):
            if old not in text:
                raise Refused(f"there is no {old!r} to change")
            text = text.replace(old, new)
    except Refused as error:
        whence = f" from {source}" if source else ""
        raise Refused(f"{by}{whence}: {error}.") from None
    return text


def tidy(text: str, python: bool) -> str:
    """Without the marks of the book's regions and what cuts leave behind."""
    text = re.sub(r"^ *(//|#|/\*) \[/[\w-]+\].*\n", "", text, flags=re.M)
    text = re.sub(r"^( *(?://|#|/\*) )\[[\w-]+\] ", r"\1", text, flags=re.M)
    if python:
        text = re.sub(r"\n{3,}", "\n\n\n", text)
    else:
        text = re.sub(r"\n{3,}", "\n\n", text)
        text = re.sub(r"^(?!namespace)(.*\{)\n\n", r"\1\n", text, flags=re.M)
        text = re.sub(r"\n\n( *\};?\n)", r"\n\1", text)
    return text.strip("\n") + "\n"


def rename(text: str, name: str, options: dict[str, str]) -> str:
    """The reader's names in the place of the book's."""
    text = re.sub(r"csrc/(aten/core|runtime|minimal)/", "csrc/", text)
    text = text.replace("device/openreg.h", "csrc/driver.h")
    text = re.sub(r"\bor(?=[A-Z])", "drv", text)
    article = "an" if name[0] in "aeiou" else "a"
    text = re.sub(r"\b([Aa])n(?= openreg)", rf"\1{article[1:]}", text)
    text = text.replace("openreg", name).replace("OPENREG", name.upper())
    text = text.replace("OpenReg", options["prefix"])
    for option, value in options.items():
        text = text.replace(f"@{option.upper()}@", value)
    return re.sub(r"(?:^.*\S +\\\n)+", align, text, flags=re.M)


def align(macro: re.Match[str]) -> str:
    """A macro whose names have changed their length."""
    lines = [line.rstrip(" \\") for line in macro[0].splitlines()]
    width = max(map(len, lines))
    return "".join(f"{line:{width}} \\\n" for line in lines)


def link(text: str, book: str) -> str:
    """Links to the book's pages: to its site, or the name of the page."""
    by = rf"[\1]({book.rstrip('/')}/\2.html)" if book else r"\1 (`book/\2.md`)"
    return re.sub(r"\[([^]]+)\]\(@BOOK@/([\w/-]+)\)", by, text)


def steps() -> dict[str, Any]:
    """What a package can be given, one after another."""
    return tomllib.loads(STEPS.read_text("utf-8"))


def until(step: str) -> list[str]:
    """A step and those before it, from none at all."""
    known = [FIRST, *steps()]
    if step not in known:
        said = ", ".join(known[1:])
        raise Refused(f"There is no step {step!r}; there are, in order: {said}")
    return known[: known.index(step) + 1]


def grow(files: dict[str, str], table: dict[str, Any], by: str) -> None:
    """Adds the files of a table, or changes those that are there."""
    for path, file in table.items():
        space = "\n\n" if path.endswith(".py") else "\n"
        before, place = files.get(path, ""), f"{by} cuts {path}"
        parts = file.get("parts", [file])
        files[path] = space.join(cut(part, before, place) for part in parts)


def sources(step: str) -> dict[str, str]:
    """The files after a step, with the book's names and marks."""
    files: dict[str, str] = {}
    grow(files, tomllib.loads(PARTS.read_text("utf-8")), PARTS.name)
    for taken in until(step)[1:]:
        grow(files, steps()[taken], f"The step {taken!r}")
    return files


def generate(name: str, options: dict[str, str]) -> dict[str, str]:
    """Every file of the package: its path and its text."""
    files = {}
    for path, source in sources(options["step"]).items():
        text = link(tidy(source, path.endswith(".py")), options["book"])
        files[rename(path, name, options)] = rename(text, name, options)
    files["NOTICE"] = (
        f"Most of this package is cut from The OpenReg Book, whose licence "
        f"follows.\n\n{(ROOT / 'LICENSE').read_text('utf-8')}"
    )
    return files


class Repository:
    """The reader's repository, of which only one branch is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun = folder.is_dir() and any(folder.iterdir())
        # A hook of git's that runs this command says where another one is.
        self.env = {k: v for k, v in os.environ.items() if k[:4] != "GIT_"}
        self.env["LC_ALL"] = "C.UTF-8"  # its words are read

    def git(self, *arguments: str, **env: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        ran = subprocess.run(
            command, env=self.env | env, capture_output=True, text=True
        )
        if ran.returncode:
            said = (ran.stderr or ran.stdout).strip()
            raise Refused(f"`git {arguments[0]}` failed: {said}")
        return ran.stdout.strip()

    def tip(self, branch: str) -> str | None:
        """The commit of a branch, if there is one."""
        try:
            wanted = f"refs/heads/{branch}"
            return self.git("rev-parse", "--verify", "--quiet", wanted)
        except Refused:
            return None

    def given(self) -> dict[str, str]:
        """What this command was told when it made the newest generated tree."""
        text = self.git("show", f"{BRANCH}:pyproject.toml")
        told: dict[str, str] = tomllib.loads(text)["tool"]["new"]
        return told

    def commit(self, files: dict[str, str], author: str, message: str) -> bool:
        """Commits a tree to the branch, unless it has that already.

        The reader's own files and index are not touched.
        """
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = Path(folder, "tree", path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            tree = (f"--work-tree={folder}/tree", "add", "--all", "--force")
            self.git(*tree, str(Path(folder, "tree")), **index)
            made = self.git("write-tree", **index)
        parent = self.tip(BRANCH)
        if parent and self.git("rev-parse", f"{parent}^{{tree}}") == made:
            return False
        identity = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", author), ("EMAIL", "new@localhost"))
        }
        after = ("-p", parent) if parent else ()
        commit = self.git(
            "commit-tree", made, *after, "-m", message, **identity
        )
        self.git("update-ref", f"refs/heads/{BRANCH}", commit, parent or "")
        return True

    def conflicts(self) -> list[str]:
        """What git could not merge by itself, tried without the files."""
        try:
            self.git("merge-tree", "--write-tree", "HEAD", BRANCH)
        except Refused as error:
            return re.findall(r"CONFLICT.*", str(error))
        return []


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or keyword.iskeyword(name):
        raise Refused(
            f"{name!r} cannot be the name of a device: expected lower-case "
            "letters and digits that begin with a letter, such as acme"
        )
    if TAKEN.fullmatch(name):
        raise Refused(
            f"{name!r} means something else to PyTorch, to C++ or in this "
            "book: choose another name, such as acme"
        )


def open_repository(name: str, folder: Path) -> Repository:
    """The repository in `folder`, where there may be nothing yet."""
    if not shutil.which("git"):
        raise Refused("There is no git: install it, and run this again")
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; expected a folder, or a new name")
    here = Repository(folder)
    if not here.begun:
        return here
    if not (folder / ".git").exists() or not here.tip(BRANCH):
        raise Refused(
            f"{folder} has files already, and no branch {BRANCH!r} that this "
            "command made: name a folder that is not there yet"
        )
    if (known := here.given()["name"]) != name:
        raise Refused(f"{folder} is the package of {known!r}, not of {name!r}")
    if here.git("branch", "--show-current") == BRANCH:
        raise Refused(
            f"{BRANCH!r} is the branch that you have checked out, and this "
            "command writes to it: `git switch main` first"
        )
    return here


def decide(
    name: str, told: dict[str, str], given: dict[str, str | None]
) -> dict[str, str]:
    """Each option: as given, else as told before, else as is usual."""
    usual = {
        "prefix": name.capitalize(),
        "author": f"The authors of torch_{name}",
        "licence": "BSD-3-Clause",
        "book": "",
        "step": FIRST,
        "torch": releases.installed(),
    }
    options = {
        option: given[option] or told.get(option, usual[option])
        for option in OPTIONS
    }
    for option, value in options.items():
        if re.search(r'["\\\n]', value):
            raise Refused(f"--{option} has a quote, backslash or line break")
    if not re.fullmatch(r"[A-Za-z]\w*", options["prefix"]):
        raise Refused(f"--prefix {options['prefix']!r} is no identifier")
    return options


def make(name: str, folder: Path, given: dict[str, str | None]) -> str:
    """Makes or updates a package; says what to do next."""
    check_name(name)
    here = open_repository(name, folder)
    told = here.given() if here.begun else {}
    options = decide(name, told, given)
    taken = until(told.get("step", FIRST))
    # A step back is none: what was taken stays.
    to_take = until(options["step"])[len(taken) :]
    trees = {
        step: generate(name, options | {"step": step})
        for step in (taken[-1], *to_take)
    }
    if not here.begun:
        folder.mkdir(parents=True, exist_ok=True)
        here.git("init", "--quiet", "--initial-branch=main")
    news = False
    for step, files in trees.items():
        message = "Update from The OpenReg Book" if told else "New device"
        message = f"Step: {step}" if step in to_take else message
        news |= here.commit(files, options["author"], message)
    if here.begun:
        return merging(here) if news else f"{folder} has all that there is."
    here.git("update-ref", "refs/heads/main", BRANCH)
    here.git("reset", "--quiet", "--hard", "main")
    return f"The device {name!r} is in {folder}: its README.md goes on."


def merging(here: Repository) -> str:
    """How what is new gets from its branch to the reader's."""
    merge = f"`git -C {here.folder} merge {BRANCH}` brings what is new to you."
    if not (conflicts := here.conflicts()):
        return merge
    return (
        f"{merge} Both of you have changed the same lines:\n"
        + "\n".join(conflicts)
        + "\nGit marks them in these files: choose, `git add` the files and "
        "`git commit`, or go back by `git merge --abort`."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="nox -s new --", description=__doc__)
    parser.add_argument("name", help="of the device, such as acme")
    parser.add_argument("folder", type=Path, help="new, or made by this before")
    parser.add_argument("--prefix", help="the name in texts, such as Acme")
    parser.add_argument("--author", help="of the package and its commits")
    parser.add_argument("--licence", help="its SPDX name (BSD-3-Clause)")
    parser.add_argument("--book", help="the address of the book's site")
    parser.add_argument("--step", help=f"to take it: {', '.join(steps())}")
    parser.add_argument("--torch", help="the release of PyTorch to build with")
    asked = vars(parser.parse_args())
    try:
        print(make(asked.pop("name"), asked.pop("folder"), asked))
    except Refused as error:
        sys.exit(f"{str(error).removesuffix('.')}.")


if __name__ == "__main__":
    main()
