"""The four shared objects, what they need, and builds that cannot be."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import releases
import torch_openreg
import torch_openreg._C as C
from cmake import CMAKE_BIN_DIR
from torch_openreg._build import TORCH_VERSION

pytestmark = pytest.mark.one_mode

BACKEND = Path(__file__).parents[1]
INSTALLED = Path(C.__file__).parent
OBJECTS = {
    "_C": Path(C.__file__),
    "bindings": INSTALLED / "lib" / "libtorch_bindings.so",
    "runtime": INSTALLED / "lib" / "libtorch_openreg.so",
    "device": INSTALLED / "lib" / "libopenreg.so",
}
OURS = {path.name for path in OBJECTS.values()}


def dynamic(name: str, tag: str) -> set[str]:
    text = subprocess.check_output(["readelf", "-dW", OBJECTS[name]], text=True)
    return set(re.findall(rf"\({tag}\).*\[(.*)\]", text))


def undefined(name: str) -> set[str]:
    command = ["nm", "-D", "--undefined-only", "-j", str(OBJECTS[name])]
    return set(subprocess.check_output(command, text=True).split())


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("_C", {"libtorch_bindings.so"}),
        ("bindings", {"libtorch_openreg.so"}),
        ("runtime", {"libopenreg.so"}),
        ("device", set()),
    ],
)
def test_each_object_needs_only_the_next(name: str, needs: set[str]) -> None:
    assert dynamic(name, "NEEDED") & OURS == needs


@pytest.mark.proves("build-together")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("_C", "$ORIGIN/lib"),
        ("bindings", "$ORIGIN"),
        ("runtime", "$ORIGIN"),
        ("device", "$ORIGIN"),
    ],
)
def test_each_object_finds_the_next_beside_itself(name: str, path: str) -> None:
    found = dynamic(name, "RUNPATH") | dynamic(name, "RPATH")
    assert found == {path}


@pytest.mark.proves("build-no-python")
@pytest.mark.parametrize("name", ["runtime", "device"])
def test_runtime_and_device_need_no_python(name: str) -> None:
    assert not [n for n in dynamic(name, "NEEDED") if "python" in n]
    assert not [s for s in undefined(name) if re.match(r"_?Py[A-Z_]", s)]


def thread_bytes(name: str) -> int:
    text = subprocess.check_output(["readelf", "-lW", OBJECTS[name]], text=True)
    return sum(int(line.split()[5], 16) for line in re.findall(r"TLS .*", text))


def test_other_libraries_find_room_for_variables_of_threads() -> None:
    """glibc has 1,664 bytes for all libraries that a process loads later.

    Whoever comes when they are used up cannot be loaded: "cannot allocate
    memory in static TLS block". scikit-learn is such a library.
    """
    assert 0 < sum(map(thread_bytes, OBJECTS)) <= 512


def test_python_is_found_where_it_is_needed() -> None:
    # The rule above sees what it looks for.
    assert "libtorch_python.so" in dynamic("bindings", "NEEDED")
    assert [s for s in undefined("bindings") if re.match(r"_?Py[A-Z_]", s)]


def test_device_knows_nothing_of_pytorch() -> None:
    assert not [n for n in dynamic("device", "NEEDED") if "torch" in n]
    assert not [s for s in undefined("device") if "c10" in s or "at6" in s]


def exported(name: str) -> list[str]:
    """The symbols that an object offers; templates' copies are no part."""
    command = ["nm", "-DC", "--defined-only", str(OBJECTS[name])]
    lines = subprocess.check_output(command, text=True).splitlines()
    found = (line.split(" ", 2) for line in lines)
    return [
        symbol
        for _, kind, symbol in found
        if kind in "TDBR" and symbol not in ("__bss_start", "_edata", "_end")
    ]


def test_the_libraries_export_what_the_list_names() -> None:
    listed = (Path(__file__).parent / "exported_symbols.txt").read_text()
    wanted: dict[str, list[str]] = {name: [] for name in OBJECTS}
    for part in listed.split("\n\n"):
        name, *symbols = part.splitlines()
        wanted[name.rstrip(":")] = symbols
    found = {name: sorted(exported(name)) for name in OBJECTS}
    assert found == wanted


def test_package_declares_what_it_is() -> None:
    package = distribution("torch_openreg")
    entry = [
        e.value for e in package.entry_points if e.group == "torch.backends"
    ]
    assert entry == ["torch_openreg:_autoload"]
    assert package.requires == [f"torch=={TORCH_VERSION}"]
    assert package.metadata["License-Expression"] == "BSD-3-Clause"


def configure(folder: Path, *settings: str, **env: str) -> str:
    # The script of that name is Python's, and hears of what Python is told.
    result = subprocess.run(
        [Path(CMAKE_BIN_DIR) / "cmake", "-S", BACKEND, "-B", folder, "-GNinja"]
        + [f"-D{setting}" for setting in settings],
        env=os.environ | env,
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    return " ".join(result.stderr.split())


def test_without_pytorch_cmake_says_what_to_install(tmp_path: Path) -> None:
    # The interpreter that made this environment has no PyTorch of its own.
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "venv", "--without-pip"]
    subprocess.check_call([*command, str(tmp_path / "venv")])
    said = configure(tmp_path / "tree", f"Python_EXECUTABLE={python}")
    assert f"PyTorch is not installed in {python}. Run" in said
    assert ADVICE in said


ADVICE = (
    f"python -m pip install torch=={releases.current()[0]} scikit-build-core "
    "cmake ninja "
    "python -m pip install --no-build-isolation ."
)
HIDE = """
import sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
"""


def test_a_build_that_pip_isolates_says_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    python = f"Python_EXECUTABLE={sys.executable}"
    said = configure(tmp_path / "tree", python, PYTHONPATH=str(tmp_path))
    assert "pip builds apart from your environment, which has PyTorch" in said
    assert ADVICE in said


def test_without_pythons_headers_cmake_names_the_package(
    tmp_path: Path,
) -> None:
    python = f"Python_EXECUTABLE={sys.executable}"
    nowhere = f"Python_INCLUDE_DIR={tmp_path}"
    said = configure(tmp_path / "tree", python, nowhere)
    assert f"The headers of {sys.executable} are missing" in said
    assert "apt-get install python3-dev; Fedora: dnf install pyth" in said


def test_cmake_refuses_other_platforms(tmp_path: Path) -> None:
    system = ("CMAKE_SYSTEM_NAME=Linux", "CMAKE_SYSTEM_PROCESSOR=riscv64")
    assert "not Linux on riscv64" in configure(tmp_path, *system)


FIND = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
foreach(wanted 9 0.2 0.0.9 0.1)
  find_package(torch_openreg ${wanted} QUIET)
  message("${wanted}: ${torch_openreg_FOUND} of \
${torch_openreg_CONSIDERED_VERSIONS}")
endforeach()
"""


def test_find_package_takes_the_version_that_is_installed(
    tmp_path: Path,
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(FIND)
    where = f"-DCMAKE_PREFIX_PATH={torch_openreg.cmake_prefix_path}"
    command = ["cmake", "-G", "Ninja", "-S", ".", "-B", ".", where]
    said = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = re.findall(r"^([\d.]+: [01] of .*)$", said.stderr, re.M)
    version = distribution("torch_openreg").version
    assert found == [
        f"{wanted}: {int(wanted == '0.1')} of {version}"
        for wanted in ("9", "0.2", "0.0.9", "0.1")
    ]
