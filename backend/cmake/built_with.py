"""What scikit-build-core asks for the requirements of the package."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def dynamic_metadata(
    settings: Mapping[str, Any], project: Mapping[str, Any]
) -> dict[str, list[str]]:
    """PyTorch in the release that is installed where the package is built.

    Without one, CMake refuses the build and says what to install.
    """
    try:
        release = version("torch").partition("+")[0]
    except PackageNotFoundError:
        return {"dependencies": ["torch"]}
    return {"dependencies": [f"torch=={release}"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """A wheel may need another release than the archive says."""
    return {"dependencies": True}
