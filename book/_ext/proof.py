"""What a full run of the tests has shown: proof.json, and what it lacks.

`nox -s tests` begins with `proof.py begin` and ends with `proof.py FOLDER`, the
checked build. That joins the compiler's and the interpreter's counts to the
regions, and fails if a line that the book shows was never run, or an example
was not. The site prints what it wrote.
"""

import datetime
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import claims
import regions
import rows

FOLDER = regions.ROOT / "build" / "proof"
RECORD = FOLDER / "proof.json"
# File -> line -> how often it ran. A line without an entry has no code.
Counts = Mapping[str, Mapping[int, int]]

# Files whose text is data to the build, so that nothing counts their lines.
# The extension and the minimal path are built and tested in environments that
# have no counter.
EXTENSION = "backend/examples/extension/"
MINIMAL = ("allocator", "copy_elements", "random", "register")
UNCOUNTED = (
    *(".toml", ".txt", ".pyi"),
    *(f"{EXTENSION}extension.cpp", f"{EXTENSION}use.py"),
    *(f"csrc/minimal/{name}.cpp" for name in MINIMAL),
)

# A compiler also counts the end of a block, and a class whose constructors it
# makes itself; neither is a line of its own.
NO_CODE = re.compile(r"[\s\])};,]*|\s*(struct|class) [^()]*\{")

# How JUnit's report names a page, and a file of tests with its class.
CASE = re.compile(r"(.+?)(?:(\.md)|((?:\.[A-Z]\w*)*))")

# Lines that no test can reach, or that run where nothing counts them: the
# region's name and the line -> the reason.
Excuses = Mapping[tuple[str, str], str]
EXCUSED = {(x.region, x.line): x.why for x in rows.rows("checked.excuses")}


def digest(root: Path = regions.ROOT) -> str:
    """Names a state of everything that a full run builds, runs and prints."""
    every = ("*.py", "*.toml", "*.md", "backend/**/*.*", "book/**/*.*")
    total = hashlib.sha256()
    for path in sorted({p for pattern in every for p in root.glob(pattern)}):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not re.search(r"/(_build|__pycache__)/", name):
            total.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def place(path: Path) -> str | None:
    """Where a counted file stands in the tree, also a page's copy of it."""
    if path.is_relative_to(regions.ROOT):
        return path.relative_to(regions.ROOT).as_posix()
    copy = path.parent.name.startswith("page-")
    return f"backend/examples/{path.name}" if copy else None


def gcov_counts(reports: Iterable[Mapping[str, Any]]) -> Counts:
    """Sums over the objects that a header or template has got into."""
    counts: dict[str, Counter[int]] = {}
    for report in reports:
        for file in report["files"]:
            path = Path(report["current_working_directory"], file["file"])
            if name := place(Path(os.path.normpath(path))):
                lines = counts.setdefault(name, Counter())
                for line in file["lines"]:
                    lines[line["line_number"]] += line["count"]
    return counts


def run_gcov(*folders: Path) -> Iterator[dict[str, Any]]:
    words = shlex.split(os.environ.get("CXX", "c++"))
    compiler = next((word for word in words if "++" in word), words[0])
    tool = re.sub(r"[cg]\+\+", "gcov", compiler)
    files = [path for folder in folders for path in folder.rglob("*.gcda")]
    done = subprocess.run(
        [tool, "--json-format", "--stdout", *files],
        capture_output=True,
        text=True,
        check=True,
    )
    yield from map(json.loads, done.stdout.splitlines())


def coverage_counts(report: Mapping[str, Any]) -> Counts:
    """What `coverage json` has written."""
    return {
        file: dict.fromkeys(found["missing_lines"], 0)
        | dict.fromkeys(found["executed_lines"], 1)
        for file, found in report["files"].items()
    }


def proven(region: regions.Region, counts: Counts) -> int | None:
    """How many lines of the region ran; None where nothing is counted."""
    if region.file.endswith(UNCOUNTED):
        return None
    lines = counts.get(region.file, {})
    return sum(
        lines.get(line, 0) > 0 for line in range(region.first, region.last + 1)
    )


def unproven(
    shown: Iterable[tuple[str, regions.Region]],
    counts: Counts,
    excused: Excuses = EXCUSED,
) -> Iterator[str]:
    """Every (page, region) with lines that never ran, as a sentence."""
    for page, region in shown:
        if region.file.endswith(UNCOUNTED):
            continue
        where = f"{region.file}:{region.first}: [{region.name}] of {page}"
        if region.file not in counts and not region.file.endswith(".h"):
            yield f"{where}: no line of this file was counted"
            continue
        lines = counts.get(region.file, {})
        dead = {
            line: text.strip()
            for line, text in enumerate(region.lines, region.first)
            if lines.get(line) == 0 and not NO_CODE.fullmatch(text)
        }
        bare = [n for n in dead if (region.name, dead[n]) not in excused]
        if bare:
            numbers = ", ".join(map(str, bare))
            yield f"{where}: no test runs line {numbers} ({dead[bare[0]]})"


def passed(
    suite: xml.Element, unless: Set[str] = {"failure", "error", "skipped"}
) -> dict[str, list[str]]:
    """File -> its tests that passed, of a JUnit report."""
    found: dict[str, list[str]] = {}
    for case in suite.iter("testcase"):
        if not unless & {part.tag for part in case}:
            # "book.start.md", or "backend.tests.test_stream.TestOrder"
            where = CASE.fullmatch(case.attrib["classname"])
            assert where, case.attrib
            path, suffix, within = where.groups()
            file = path.replace(".", "/") + (suffix or ".py")
            name = case.attrib["name"].partition("[")[0]
            found.setdefault(file, []).append(
                "::".join([*filter(None, (within or "").split(".")), name])
            )
    return found


def unrun(
    pages: Mapping[str, str], ran: Mapping[str, list[str]]
) -> Iterator[str]:
    """Every page whose examples did not all run, counted without a parser."""
    for page, text in pages.items():
        expected = regions.count_examples(text)
        if len(ran.get(page, [])) != expected:
            yield (
                f"{page}: {len(ran.get(page, []))} of {expected} examples ran"
            )


def passing(
    proofs: Mapping[str, list[claims.Test]], ran: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Claim -> those of its tests that were run, not left out."""
    return {
        claim: [
            str(test) for test in tests if test.name in ran.get(test.file, [])
        ]
        for claim, tests in proofs.items()
    }


def commit(root: Path = regions.ROOT) -> str:
    def git(*command: str) -> str:
        done = subprocess.run(
            ["git", *command], cwd=root, capture_output=True, text=True
        )
        return done.stdout.strip()

    edited = ", edited" if git("status", "--porcelain") else ""
    return (git("rev-parse", "--short", "HEAD") or "no commit") + edited


def read_record(path: Path = RECORD) -> dict[str, Any] | None:
    """What the last full run wrote, if it ran on this very tree."""
    record = json.loads(path.read_text()) if path.exists() else {}
    return record if record.get("sources") == digest() else None


def begin() -> int:
    """Notes what is about to be run, so that an edit meanwhile is noticed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "sources").write_text(digest())
    return 0


def end(checked: str) -> int:
    pages, sources = regions.read_pages(), regions.read_sources()
    found, _ = regions.find_regions(sources)
    page_of = regions.pages_of(pages)
    shown = [(page_of[region.name], region) for region in found]
    counts = {
        **gcov_counts(run_gcov(Path(checked), FOLDER / "examples")),
        **coverage_counts(json.loads((FOLDER / "python.json").read_text())),
    }
    suite = xml.parse(FOLDER / "tests.xml").getroot()
    ran = passed(suite)
    claimed = passing(claims.proofs(), ran)
    wrong = [*unproven(shown, counts), *unrun(pages, ran)]
    # What a user's machine cannot try, such as hosts of its own, is no fault.
    met = passing(claims.proofs(), passed(suite, {"failure", "error"}))
    met = claimed if "CI" in os.environ else met
    lacking = [claim for claim, tests in claimed.items() if not tests]
    wrong += [f"no test of {c!r} ran" for c in lacking if not met[c]]
    for claim in filter(met.get, lacking):
        print(f"not tried here: {claim!r}; its tests say why above")
    now = digest()
    if (FOLDER / "sources").read_text() != now:
        wrong.append("The sources were edited during the run; run it again.")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    record = {
        "sources": now,
        "torch": rows.pytorch(),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "tests": sum(map(len, ran.values())),
        "examples": {page: len(ran.get(page, [])) for page in pages},
        "regions": {r.name: proven(r, counts) for r in found},
        "claims": claimed,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(begin() if sys.argv[1] == "begin" else end(sys.argv[1]))
