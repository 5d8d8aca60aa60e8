"""What the Python of a compiled graph imports to make its kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import (
    CppCodeCache,
    CppPythonBindingsCodeCache,
    LambdaFuture,
)

from torch_openreg import _C


class _Cache(CppPythonBindingsCodeCache):
    """Shared objects, built as Inductor builds the CPU's, without Python."""

    cache: ClassVar[dict[str, Any]] = {}
    _load_library_inner = CppCodeCache._load_library_inner


# [py-kernels-compile] Compiles source code for the graph's Python to call.
def compile_kernel(
    async_compile: AsyncCompile, name: str, source: str
) -> LambdaFuture | Callable[..., None]:
    """Compiles `source`, at the same time as the graph's other kernels."""
    at_once = get_compile_threads() <= 1
    submit = None if at_once else async_compile.submit
    load = _Cache.load_async(source, submit_fn=submit)

    def make() -> Callable[..., None]:
        entry = ctypes.cast(load().openreg_kernel, ctypes.c_void_p).value
        return _C._compiled_kernel(name, entry or 0)

    return make() if at_once else LambdaFuture(make)


# [/py-kernels-compile]
