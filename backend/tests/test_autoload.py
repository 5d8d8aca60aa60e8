"""`import torch` brings the backend, in every order and in every process."""

from __future__ import annotations

from functools import partial
from importlib.metadata import entry_points

import pytest

import _fresh
import torch_openreg
from _fresh import USE_COPY, copy_package
from _session import counting
from torch_openreg._build import TORCH_VERSION

pytestmark = pytest.mark.one_mode

# `import torch` itself is what is tested here.
prints = partial(_fresh.prints, new=True)
run = partial(_fresh.run, new=True)


def test_the_entry_point_names_the_hook():
    (entry_point,) = entry_points(group="torch.backends")
    assert entry_point.value == "torch_openreg:_autoload"
    assert entry_point.load() is torch_openreg._autoload
    assert torch_openreg._autoload() is None


@pytest.mark.proves(
    "autoload-enough",
    "checklist.entry_point",
    "autoload.torch",
    "autoload.both",
)
def test_import_torch_is_enough_and_later_imports_change_nothing():
    prints(
        """
        import torch
        x = torch.ones(2, device="openreg")
        before = torch.openreg
        import torch_openreg, torch.openreg.random, torch
        assert torch.openreg is before is torch_openreg.openreg
        assert torch.openreg.random.manual_seed is torch.openreg.manual_seed
        assert (x + x).tolist() == [2, 2]
        """
    )


@pytest.mark.proves("autoload.off", "environment.TORCH_DEVICE_BACKEND_AUTOLOAD")
def test_switched_off_it_can_be_imported_by_hand():
    prints(
        """
        import torch
        assert not hasattr(torch, "openreg")
        try:
            torch.device("openreg")
        except RuntimeError as error:
            assert "openreg" in str(error)
        else:
            raise AssertionError("the device is known")
        import torch_openreg
        assert torch.ones(2, device="openreg:1").sum().item() == 2
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


@pytest.mark.proves("autoload.package", "autoload.threads")
def test_the_package_can_be_imported_first_and_by_many_threads():
    prints(
        """
        import threading
        problems = []

        def use():
            try:
                import torch_openreg, torch
                assert torch.ones(2, device="openreg").sum().item() == 2
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems
        """
    )


@pytest.mark.proves("autoload.spawned")
def test_a_spawned_child_uses_the_devices(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "import torch.multiprocessing as mp\n"
        "def child(rank):\n"
        "    assert not torch.openreg.is_initialized()\n"
        "    torch.openreg.set_device(rank)\n"
        "    x = torch.full((3,), rank, device='openreg')\n"
        "    assert x.device.index == rank\n"
        "    assert x.sum().item() == 3 * rank\n"
        "if __name__ == '__main__':\n"
        "    x = torch.ones(2, device='openreg')\n"
        "    mp.spawn(child, nprocs=2)\n"
        "    print(x.tolist())\n"
    )
    told = prints(
        "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')",
        str(program),
    )
    assert told == "[1.0, 1.0]\n"


def test_a_broken_install_is_named_by_import_torch(tmp_path):
    package = copy_package(tmp_path)
    (package / "lib" / "libopenreg.so").unlink()
    process = run(USE_COPY + "import torch", str(tmp_path), **counting())
    assert process.returncode == 1
    assert "libopenreg.so: cannot open shared object" in process.stdout
    assert "Build and install it again." in process.stdout
    assert "Failed to load the backend extension: torch_openreg" in (
        process.stdout
    )


@pytest.mark.proves(
    "messages.has-not-been-built-here",
    "messages.torch_openreg-was-built-against-pytorch",
)
def test_each_way_to_be_broken_is_an_import_error_with_its_cause(tmp_path):
    package = copy_package(tmp_path)
    told = prints(
        USE_COPY
        + """
import pathlib, torch
build = pathlib.Path(sys.argv[1]) / "torch_openreg" / "_build.py"

def try_import():
    try:
        import torch_openreg
    except ImportError as error:
        print(error)
    for name in [n for n in sys.modules if n.startswith("torch_openreg")]:
        del sys.modules[name]

build.write_text('TORCH_VERSION = "2.12.1"\\n')
try_import()
build.unlink()
try_import()
""",
        str(tmp_path),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        PYTHONDONTWRITEBYTECODE="1",
        **counting(),
    )
    assert package.exists()
    another_version, not_built = told.splitlines()
    assert another_version == (
        "torch_openreg was built against PyTorch 2.12.1, but PyTorch "
        f"{TORCH_VERSION} is installed. Install that version, or build "
        "torch_openreg again."
    )
    assert not_built.startswith("torch_openreg has not been built here.")


def test_a_malformed_variable_is_named_by_import_torch():
    process = run("import torch", OPENREG_DEVICE_COUNT="many")
    assert process.returncode == 1
    assert "OPENREG_DEVICE_COUNT is 'many'" in process.stdout
