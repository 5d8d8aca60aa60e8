"""The openreg device for PyTorch: importing this package registers it.

After `import torch_openreg` tensors can live on `torch.device("openreg")`, and
the functions of the device are found in `torch.openreg`. An installed package
is imported by `import torch` itself, see `_autoload`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path


# [py-autoload] Defined before torch is imported, so that torch can call it.
def _autoload() -> None:
    """Is called by `import torch`, which has just imported this package.

    There is nothing left to do: the import has registered the backend. When
    a program imports this package first, `import torch` below comes back here
    while the package is half imported; the rest follows when it returns.
    """


import torch  # noqa: E402

# [/py-autoload]


# [py-room] Refuses to be a second backend, before it registers anything.
def _find_room() -> None:
    """Refuses a process in which another package has taken the device.

    Raises:
        ImportError: PyTorch's one free device has another name already.
    """
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "openreg"):
        raise ImportError(
            f"torch_openreg cannot be loaded: the device {name!r} is here "
            "already, and PyTorch has room for one device of this kind. "
            "Uninstall one of the two packages, or set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want."
        )


# [/py-room]


# [py-load] Says what is wrong in clearer words than the linker would.
def _load_library() -> None:
    """Loads the shared objects.

    Raises:
        ImportError: They are missing, broken or built for another PyTorch.
    """
    try:
        from torch_openreg import _build
    except ImportError as error:
        raise ImportError(
            "torch_openreg has not been built here. Install it with "
            "`python -m pip install --no-build-isolation .` from its checkout."
        ) from error
    found = torch.__version__.split("+")[0]
    if found != _build.TORCH_VERSION:
        raise ImportError(
            f"torch_openreg was built against PyTorch {_build.TORCH_VERSION}, "
            f"but PyTorch {found} is installed. Install that version, or "
            "build torch_openreg again."
        )
    try:
        importlib.import_module("torch_openreg._C")
    except ImportError as error:
        raise ImportError(
            f"torch_openreg is installed, but cannot be loaded: {error}. "
            "Build and install it again."
        ) from error


# [/py-load]


# [py-register] Name the device, give it a module, generate its methods.
def _register() -> None:
    from torch_openreg import _C, openreg

    # A misspelt OPENREG_* variable ends here, not in a machine without devices.
    _C._check_environment()
    torch.utils.rename_privateuse1_backend("openreg")
    importlib.import_module("torch_openreg.fakes")
    torch._register_device_module("openreg", openreg)
    # `import torch.openreg.random` must find our module, not load another.
    for _, name, _ in pkgutil.iter_modules(openreg.__path__, "openreg."):
        module = importlib.import_module(f"torch_openreg.{name}")
        sys.modules[f"torch.{name}"] = module
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    importlib.import_module("torch_openreg.distributed").register()


# [/py-register]


# [py-cmake-path] Where CMake finds this package and the PyTorch it belongs to.
def _find_cmake_packages() -> str:
    from torch_openreg import _build

    ours = Path(_build.__file__).parent / "share" / "cmake"
    return f"{ours};{torch.utils.cmake_prefix_path}"


# [/py-cmake-path]

_find_room()
_load_library()
_register()

cmake_prefix_path: str = _find_cmake_packages()
"""CMake's `CMAKE_PREFIX_PATH` for `find_package(torch_openreg)`."""
