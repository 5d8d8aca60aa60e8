"""The example extensions, compiled when their sources have changed."""

from __future__ import annotations

from pathlib import Path

from torch.utils import cpp_extension

import _rows
import torch_openreg._build
from _examples import EXAMPLES

STUBS = _rows.FOLDER / "stubs.txt"


def listed_stubs() -> dict[str, list[str]]:
    """Header -> its stubs, as they were when the book was written."""
    lines = (line.partition(": ") for line in STUBS.read_text().splitlines())
    return {header: names.split() for header, _, names in lines}


def load(name: str = "custom_tensor", *, uses_backend: bool = False) -> str:
    """Registers the operators of an example; the path of its library."""
    package = Path(torch_openreg._build.__file__).parent
    linked = [f"-L{package / 'lib'}", "-ltorch_openreg"]
    library = cpp_extension.load(
        name=name,
        sources=[str(EXAMPLES / f"{name}.cpp")],
        extra_cflags=["-O1"],
        extra_include_paths=[str(package / "include")] * uses_backend,
        extra_ldflags=linked * uses_backend,
        is_python_module=False,
    )
    return str(library)


def load_every_stub() -> None:
    """Gives the device a kernel for every stub: one that throws its name.

    This process is good for nothing else afterwards.
    """
    folder = Path(cpp_extension._get_build_directory("stub_lists", False))
    headers, registrations = [], []
    for number, (header, names) in enumerate(listed_stubs().items()):
        # Three headers give these names to three types, so only one of them
        # can be included as it is.
        clash = ("forward_fn", "backward_fn")
        headers += [f"#define {name} {name}_{number}" for name in clash]
        headers.append(f"#include <{header}>")
        headers += [f"#undef {name}" for name in clash]
        for name in names:
            space, _, stub = f"at::native::{name}".rpartition("::")
            registrations.append(f"namespace {space} {{ THROWS({stub}) }}")
    for file, lines in {
        "stub_headers.inc": headers,
        "stub_registrations.inc": registrations,
    }.items():
        path, text = folder / file, "\n".join(lines) + "\n"
        # A file that is written is compiled anew.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    cpp_extension.load(
        name="every_stub",
        sources=[str(EXAMPLES / "every_stub.cpp")],
        extra_cflags=[
            "-O0",
            "-DHAVE_AVX2_CPU_DEFINITION",
            "-DHAVE_AVX512_CPU_DEFINITION",
        ],
        extra_include_paths=[str(folder)],
        is_python_module=False,
    )
