"""torch.openreg.show_calls: each call of an operator, printed before it."""

from __future__ import annotations

from typing import Any, TextIO

import torch
from torch import _C
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_openreg.openreg.devices import current_device
from torch_openreg.openreg.streams import current_stream

__all__ = ["show_calls"]


def show_calls(file: TextIO | None = None) -> TorchDispatchMode:
    """Prints the calls of operators while a `with` block runs.

    A line stands there before its call is made, so that the last one tells who
    failed. It has the operator, the dispatch key that the arguments lead to,
    the kernel in a word, the device, and this thread's stream there.

    - `native`: a kernel written for the operator and the key.
    - `alias`: the one function that calls the CPU's kernel in device memory.
    - `default`: PyTorch's kernel for all backends. What it calls is indented,
      or not shown where no tensor takes a tensor's place, as in `x * 2`.
    - `fallback`: on the host, on copies; or an error if the device refuses.
    - `none`: there is no kernel, and an error follows.

    Operators are seen below autograd and autocast, in this thread and in the
    backward passes that it starts. What then runs on the device, and when, is
    in `torch.openreg.testing.trace`.

    Args:
        file: Where to print; by default standard output.
    """
    return _ShowCalls(file)


# [py-calls-path] What the dispatcher will run for a key, as one word.
_PATHS = {
    "kernel": "native",
    "default backend kernel": "default",
    "math kernel": "default",
    "backend fallback": "fallback",
}


def _path(operator: str, key: str) -> str:
    def line(dump: str) -> str:
        return f"\n{dump}".partition(f"\n{key}: ")[2].partition("\n")[0]

    chosen = line(_C._dispatch_dump_table(operator))
    # A boxed function serves many operators; which one, its signature hides.
    boxed = ":: (none)" in line(_C._dispatch_dump(operator))
    if boxed and "csrc/aten/" in chosen:
        return "alias"
    return _PATHS.get(chosen.rpartition(" [")[2].strip("]"), "none")


# [/py-calls-path]


# [py-calls-place] The key and the device that a call is for.
_BACKENDS = _C._dispatch_keyset_full_after(_C.DispatchKey.Python)


def _place(operator: str, arguments: list[Any]) -> tuple[str, torch.device]:
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    asked = [a for a in arguments if isinstance(a, torch.device)]
    devices = [*(t.device for t in tensors), *asked, torch.device("cpu")]
    device = next((d for d in devices if d.type == "openreg"), devices[0])
    if device.type == "openreg" and device.index is None:
        device = torch.device("openreg", current_device())
    # A factory has no tensors to take keys from; PyTorch asks its options.
    if not tensors or (
        asked
        and _C._dispatch_has_kernel_for_dispatch_key(operator, "BackendSelect")
    ):
        layout = [a for a in arguments if isinstance(a, torch.layout)]
        sparse = {torch.strided: "", torch.sparse_coo: "Sparse"}
        prefix = sparse.get(layout[0], "SparseCsr") if layout else ""
        return prefix + _C._dispatch_key_for_device(device.type), device
    keys = _C._dispatch_keys(tensors[0])
    for tensor in tensors:
        keys |= _C._dispatch_keys(tensor)
    return (keys & _BACKENDS).highestPriorityTypeId().name, device


# [/py-calls-place]


def _has_number(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a number takes a tensor's place, which redispatch refuses."""
    given = zip(func._schema.arguments, args, strict=False)
    return any(
        isinstance(parameter.type, _C.TensorType)
        and not isinstance(argument, torch.Tensor)
        for parameter, argument in given
    )


class _ShowCalls(TorchDispatchMode):
    def __init__(self, file: TextIO | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._file = file
        self._depth = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # [py-calls-mode] The mode is called in place of the backend's kernel.
        kwargs = kwargs or {}
        name = func.name()
        key, device = _place(name, tree_leaves((args, kwargs)))
        path = _path(name, key)
        line = f"{'  ' * self._depth + name:32} {key:11} {path:8} {device}"
        if device.type == "openreg":
            line += f" stream {current_stream(device).stream_id}"
        print(line, file=self._file)
        others = types or _C._len_torch_dispatch_stack() > 0
        if path != "default" or others or _has_number(func, args):
            return func(*args, **kwargs)
        # Call the very kernel, with the mode on, to see what it calls.
        keys = _C.DispatchKeySet(_C._dispatch_key_parse(key))
        self._depth += 1
        try:
            with self:
                return func.redispatch(keys, *args, **kwargs)
        finally:
            self._depth -= 1

        # [/py-calls-mode]
