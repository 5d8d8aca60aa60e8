"""The example extensions, compiled when their source has changed."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils import cpp_extension

from tables.stubs import listed_stubs

EXAMPLES = Path(__file__).parents[1] / "examples"
SOURCE = EXAMPLES / "custom_tensor.cpp"
EVERY_STUB = EXAMPLES / "every_stub.cpp"


def load() -> str:
    """Makes torch.ops.custom_tensor; the library's path."""
    path = cpp_extension.load(
        name=SOURCE.stem,
        sources=[str(SOURCE)],
        extra_cflags=["-O1"],
        is_python_module=False,
    )
    assert torch.ops.custom_tensor.tile
    return path


def load_every_stub() -> None:
    """Gives the device a kernel for every stub: one that throws its name.

    This process is good for nothing else afterwards.
    """
    folder = Path(cpp_extension.get_default_build_root(), "stub_lists")
    folder.mkdir(parents=True, exist_ok=True)
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
        name=EVERY_STUB.stem,
        sources=[str(EVERY_STUB)],
        extra_cflags=[
            "-O0",
            "-DHAVE_AVX2_CPU_DEFINITION",
            "-DHAVE_AVX512_CPU_DEFINITION",
        ],
        extra_include_paths=[str(folder)],
        is_python_module=False,
    )


def load_binomial_meta() -> None:
    """Registers the meta function of aten::binomial."""
    cpp_extension.load(
        name="binomial_meta",
        sources=[str(EXAMPLES / "binomial_meta.cpp")],
        extra_cflags=["-O1"],
        is_python_module=False,
    )
