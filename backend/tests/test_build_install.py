"""The build chapter's commands install a backend where nothing is set up."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

import _rows
import _session

pytestmark = pytest.mark.one_mode

ROOT = Path(__file__).parents[2]
TOOLS = str(Path(sys.executable).parent)
COMMANDS = _rows.read("build")

USE = """
import torch, torch_openreg
print((torch.ones(1, device="openreg") + 1).device)
print(torch_openreg.__file__)
print(torch_openreg._C.__file__)
print(*sorted({
    line.split()[-1] for line in open("/proc/self/maps")
    if line.endswith("openreg.so\\n") or line.endswith("bindings.so\\n")
}))
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_venv(tmp_path_factory.mktemp("install"))


def make_venv(parent: Path) -> Path:
    """An environment of its own that sees PyTorch and the build's tools."""
    folder = parent / "venv"
    subprocess.check_call([sys.executable, "-m", "venv", folder])
    paths = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    # PyTorch isn't installed a second time. What stands in the other
    # folder's own .pth files, such as an editable backend, isn't seen.
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(venv: Path, *command: str) -> str:
    """Runs a command with no variable set but where programs are."""
    (venv.parent / "home").mkdir(exist_ok=True)
    return subprocess.run(
        command,
        cwd=ROOT,
        env={
            # The tools that the package is built with, before those of the
            # system: two versions of ninja undo each other's builds.
            "PATH": os.pathsep.join(
                [f"{venv / 'bin'}", TOOLS, "/usr/bin", "/bin"]
            ),
            "HOME": str(venv.parent / "home"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


@pytest.mark.smoke
@pytest.mark.parametrize("command", COMMANDS["install"])
def test_command_installs_a_backend_that_works(
    venv: Path, command: str
) -> None:
    try:
        run(venv, "bash", "-c", command)
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stdout[-4000:])
    editable = use(venv).is_relative_to(ROOT / "backend")
    assert editable == ("-e" in command.split())
    if not editable:
        build_extension(venv)


def use(venv: Path) -> Path:
    """The package that is imported; its libraries must be the environment's."""
    # -P: the package is found because it is installed, not because we are
    # in a folder that has one.
    used = run(venv, "python", "-P", "-c", USE)
    device, package, stub, libraries = used.splitlines()
    assert device == "openreg:0"
    assert Path(stub).is_relative_to(venv)
    found = [Path(library) for library in libraries.split()]
    assert [path.name for path in found] == [
        *("libopenreg.so", "libtorch_bindings.so", "libtorch_openreg.so")
    ]
    assert all(path.is_relative_to(venv) for path in found), found
    return Path(package)


# What holds of a device that has the minimal path alone.
FAIR = ("test_minimal.py", "test_minimal_fallback.py")
# What asks for the full set: whether a kernel of it is there for speed alone.
NEEDS_ALL = "item_needs_no_row"
MINIMAL = """
import os, subprocess, sys, torch
x = torch.ones(2, 2, device="openreg")[:, 1]
torch.openreg.fallback.reset()
x + x
print(torch.openreg.fallback.counts())
try:
    torch.openreg.memory_allocated()
except NotImplementedError as error:
    print(error)
autoload = "TORCH_DEVICE_BACKEND_AUTOLOAD"
full = os.environ | {"OPENREG_OPERATORS": "full", autoload: "0"}
program = (sys.executable, "-P", "-c", "import torch_openreg")
said = subprocess.run(program, env=full, capture_output=True, text=True)
print(said.stderr.splitlines()[-1])
"""


@pytest.mark.smoke
def test_the_minimal_path_is_a_backend(tmp_path: Path) -> None:
    venv = make_venv(tmp_path)
    tests = [f"backend/tests/{name}" for name in FAIR]
    pytest_ = ("python", "-P", "-m", "pytest", "-p", "no:cacheprovider")
    try:
        for command in COMMANDS["minimal"]:
            run(venv, "bash", "-c", command)
        run(venv, *pytest_, *tests, "-k", f"not {NEEDS_ALL}")
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stdout[-4000:])
    assert use(venv).is_relative_to(venv)
    said = run(venv, "python", "-P", "-c", MINIMAL)
    counts, memory, full = said.splitlines()
    assert counts == "{'aten::add.out': 1}"
    assert "counting memory needs the pool, which this package was" in memory
    assert "OPENREG_OPERATORS is 'full', but this package has the" in full


SDIST = "from scikit_build_core.build import build_sdist; build_sdist({!r})"


def pack(venv: Path, folder: Path) -> Path:
    """The source distribution."""
    run(venv, "python", "-P", "-c", SDIST.format(str(folder)))
    (archive,) = folder.glob("torch_openreg-*.tar.gz")
    return archive


def read_by_build(tree: Path) -> set[Path]:
    """The files of this clone of which CMake and the compiler made `tree`."""
    headers = subprocess.check_output(
        ["ninja", "-C", tree, "-t", "deps"], text=True
    )
    words = headers.split() + (tree / "build.ninja").read_text().split()
    files = {(tree / word.removesuffix(":")).resolve() for word in words}
    mine = {file for file in files if file.is_relative_to(ROOT / "backend")}
    mine |= {*(ROOT / "backend" / "torch_openreg").rglob("*.py")}
    return {file for file in mine if file.is_file()} | {ROOT / "pyproject.toml"}


@pytest.mark.smoke
def test_the_source_distribution_has_all_that_a_build_reads(
    venv: Path, tmp_path: Path
) -> None:
    read = read_by_build(_session.BUILD / "release")
    assert len({file.parent for file in read}) > 10
    with tarfile.open(pack(venv, tmp_path)) as archive:
        held = {
            name.partition("/")[2]: archive.extractfile(name)
            for name in archive.getnames()
        }
        for file in read:
            packed = held.get(str(file.relative_to(ROOT)))
            assert packed is not None, file
            assert packed.read() == file.read_bytes(), file


@pytest.mark.stress
def test_a_wheel_from_the_source_distribution_works(tmp_path: Path) -> None:
    """It is made of what the archive holds, which pip unpacks elsewhere."""
    venv = make_venv(tmp_path)
    archive = pack(venv, tmp_path)
    pip = ("python", "-m", "pip")
    apart = ("--no-build-isolation", "--no-deps", f"--wheel-dir={tmp_path}")
    try:
        run(venv, *pip, "wheel", *apart, str(archive))
        (wheel,) = tmp_path.glob("torch_openreg-*.whl")
        run(venv, *pip, "install", str(wheel))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stdout[-4000:])
    assert use(venv).is_relative_to(venv)


def build_extension(venv: Path) -> None:
    """An extension is built against the wheel, and launches a kernel."""
    try:
        *_, said = (run(venv, "bash", "-c", c) for c in COMMANDS["extension"])
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stdout[-4000:])
    assert said.splitlines() == ["True [2.0, 4.0, 6.0]", "False"]
    library = ROOT / "build" / "extension" / "libextension.so"
    dynamic = run(venv, "readelf", "-dW", str(library))
    needs = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    assert "libtorch_openreg.so" in needs
    assert not [name for name in needs if "python" in name]


@pytest.mark.proves("autoload-version")
def test_another_pytorch_is_refused_by_name() -> None:
    """Before anything is loaded that could miss a symbol."""
    code = """
import sys, types
built = types.ModuleType("torch_openreg._build")
built.TORCH_VERSION = "2.12.0"
sys.modules["torch_openreg._build"] = built
try:
    import torch_openreg
except ImportError as error:
    print(error)
print([name for name in sys.modules if name.endswith("._C")])
print("bindings.so" in open("/proc/self/maps").read())
"""
    said = subprocess.check_output(
        [sys.executable, "-c", code],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        text=True,
    ).splitlines()
    assert re.fullmatch(
        r"torch_openreg was built against PyTorch 2\.12\.0, but PyTorch "
        r"[\d.]+ is installed\. Install that version, or build .* again\.",
        said[0],
    )
    assert said[1:] == ["['torch._C']", "False"]
