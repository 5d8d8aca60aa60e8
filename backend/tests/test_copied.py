"""What a reader copies from a page compiles, configures or installs.

A page that shows C++ names the headers of PyTorch that it needs. Each of its
files is compiled with these in the place of its own, and no line that the page
shows may fail. Lines that it does not show may: nobody copies them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections import defaultdict
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from scikit_build_core.build import prepare_metadata_for_build_wheel
from torch.utils.cpp_extension import include_paths

import _rows
import torch_openreg._C
from _device import compiler
from cmake import CMAKE_BIN_DIR
from torch_openreg._build import TORCH_VERSION

pytestmark = pytest.mark.one_mode

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in sorted((ROOT / "book").glob("*/*.md"))
}
BADGES = _rows.read("badges")
LISTING = re.compile(
    r"^ *```\{literalinclude\} (.+)\n *:start-after: \"\[(.+)\]\"$", re.M
)
# Where the compiler looks for PyTorch's headers; Kineto's have a folder.
INCLUDED = [*include_paths(), f"{include_paths()[0]}/kineto"]
INSTALLED = Path(torch_openreg._C.__file__).parent / "include"
FLAGS = (
    *("-std=c++20", "-fsyntax-only", "-fmax-errors=0", "-w"),
    *("-DAT_PER_OPERATOR_HEADERS", "-DUSE_KINETO", "-DFMT_HEADER_ONLY"),
    *("-DHAVE_AVX2_CPU_DEFINITION", "-DHAVE_AVX512_CPU_DEFINITION"),
    f"-I{ROOT / 'backend'}",
    f"-isystem{INSTALLED}",
    *(f"-isystem{folder}" for folder in INCLUDED),
    f"-isystem{sysconfig.get_path('include')}",
)
PYTORCH = re.compile(
    r"^#include <((?:ATen|c10|torch)/.+|libkineto\.h|output_base\.h)>$", re.M
)


class Region(NamedTuple):
    name: str
    first: int  # the number of its first line
    text: str


def region(file: str, name: str) -> Region:
    text = (ROOT / file).read_text()
    head, _, rest = re.split(rf"(\[{name}\] .*\n)", text)
    body, _, _ = rest.partition(f"[/{name}]")
    lines = body.splitlines(keepends=True)[:-1]  # where the end's comment is
    return Region(name, head.count("\n") + 2, "".join(lines))


def shown(page: str) -> dict[str, list[Region]]:
    """File -> what a page shows of it, in order."""
    found = defaultdict(list)
    for path, name in LISTING.findall(PAGES[page]):
        file = os.path.normpath(f"{os.path.dirname(page)}/{path}")
        found[file].append(region(file, name))
    return found


def is_emulator(file: str, name: str) -> bool:
    """By the nearest place that book/rows/badges.toml has."""
    kinds = {place: kind for kind, places in BADGES.items() for place in places}
    near = name, file, *map(str, Path(file).parents)
    return next(kinds[x] for x in near if x in kinds) == "emulator only"


def copied(page: str, file: str) -> str:
    """What a reader has who copies a page's listings of a file."""
    return "\n".join(part.text for part in shown(page)[file])


def said(page: str) -> list[str]:
    """The headers that a page says one needs, some with a NAME of many."""
    line = re.search("^Headers you need: .*$", PAGES[page], re.M)
    return re.findall("`<(.+?)>`", line[0]) if line else []


def headers(page: str, file: str) -> list[str]:
    """The same, with those of a NAME that the file includes."""
    own = PYTORCH.findall((ROOT / file).read_text())
    every = (re.compile(name.replace("NAME", r"\w+")) for name in said(page))
    named = [x for name in every for x in own if name.fullmatch(x)]
    return [*(name for name in said(page) if "NAME" not in name), *named]


def files(page: str) -> list[str]:
    """The C++ of a page that a reader may copy; an exercise has its own."""
    return [
        file
        for file, parts in shown(page).items()
        if Path(file).suffix in (".cpp", ".h")
        and "/exercises/" not in file
        and not all(is_emulator(file, part.name) for part in parts)
    ]


def faults(text: str, headers: list[str], lines: set[int]) -> list[str]:
    """What the compiler says of these lines, with these headers of PyTorch."""
    begin = "".join(f"#include <{name}>\n" for name in headers)
    source = f'{begin}#line 1 "page"\n{PYTORCH.sub("", text)}'
    ran = subprocess.run(
        [*compiler(), *FLAGS, "-xc++", "-"],
        input=source,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    fatal = re.findall(r"^.*fatal error: .+$", ran.stderr, re.M)
    found = re.findall(r"^page:(\d+):\d+: (error: .+)$", ran.stderr, re.M)
    return [*fatal, *(f"{n}: {why}" for n, why in found if int(n) in lines)]


COMPILED = [
    (page, file)
    for page, text in PAGES.items()
    if "\nHeaders you need: " in text
    for file in files(page)
]


@pytest.mark.stress
@pytest.mark.parametrize(("page", "file"), COMPILED)
def test_a_listing_needs_no_header_that_its_page_does_not_say(
    page: str, file: str
) -> None:
    lines = {
        part.first + i
        for part in shown(page)[file]
        for i in range(part.text.count("\n"))
    }
    wrong = faults((ROOT / file).read_text(), headers(page, file), lines)
    assert wrong == [], f"{page} lacks a header for {file}"


def test_the_autocast_kernels_need_only_what_their_page_says() -> None:
    """Of the pages that show a whole file in pieces, one without its own test:
    test_kernel.py and test_smallest.py have the others."""
    page, file = "book/chapters/amp.md", "backend/csrc/amp/autocast.cpp"
    text = copied(page, file)
    using = re.findall("^Headers you need: .*`(using .+?;)`", PAGES[page], re.M)
    lines = set(range(1, 1 + text.count("\n") + 2))
    assert faults("\n".join([*using, text]), said(page), lines) == []


def test_the_compiler_is_asked_of_the_lines_that_are_shown() -> None:
    text = "#include <c10/none.h>\nint one = two;\nint three = four;\n"
    (why,) = faults(text, [], {3})
    assert why.startswith("3: error: 'four' was not declared")
    assert faults(text, [], {1}) == []
    (why,) = faults(text, ["c10/none.h"], {1})
    assert "c10/none.h: No such file" in why


def test_a_page_that_shows_cpp_says_its_headers() -> None:
    for page, text in PAGES.items():
        if page.startswith("book/chapters/") and files(page):
            assert "\nHeaders you need: " in text, page
        for name in said(page):
            pattern = name.replace("NAME", "*")
            known = *map(Path, INCLUDED), INSTALLED
            there = any(any(folder.glob(pattern)) for folder in known)
            assert there or "/" not in name, f"{page}: there is no <{name}>"


def test_cmake_accepts_what_is_copied(tmp_path: Path) -> None:
    page, file = "book/chapters/build.md", "backend/CMakeLists.txt"
    text, backend = copied(page, file), tmp_path / "backend"
    backend.mkdir()
    (backend / "CMakeLists.txt").write_text(f"{text}\n")
    releases = "pyproject.toml"
    (tmp_path / releases).write_text(copied(page, releases))
    for folder in "device", "csrc", "torch_openreg":
        (backend / folder).symlink_to(ROOT / "backend" / folder)
    command = [f"{CMAKE_BIN_DIR}/cmake", "-G", "Ninja", "-S", str(backend)]
    command += ["-B", str(tmp_path / "tree")]
    command += [f"-DPython_EXECUTABLE={sys.executable}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "CMake Error" not in ran.stderr


def test_pip_accepts_what_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, file = "book/chapters/build.md", "pyproject.toml"
    text = copied(page, file)
    text += copied("book/chapters/autoload.md", file)
    whole = tomllib.loads((ROOT / file).read_text())
    mine = tomllib.loads(text)
    for table in "build-system", "project":
        assert mine[table] == whole[table]
    assert mine["tool"]["scikit-build"] == whole["tool"]["scikit-build"]
    (tmp_path / file).write_text(text)
    for name in "README.md", "LICENSE":
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "backend" / "torch_openreg").mkdir(parents=True)
    (tmp_path / "backend" / "cmake").symlink_to(ROOT / "backend" / "cmake")
    monkeypatch.chdir(tmp_path)
    made = prepare_metadata_for_build_wheel(str(tmp_path))
    told = (tmp_path / made / "METADATA").read_text()
    assert f"Version: {distribution('torch_openreg').version}\n" in told
    assert f"Requires-Dist: torch=={TORCH_VERSION}\n" in told
    entry = (tmp_path / made / "entry_points.txt").read_text()
    assert entry.split() == [
        "[torch.backends]",
        "torch_openreg",
        "=",
        "torch_openreg:_autoload",
    ]
