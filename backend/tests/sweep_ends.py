"""Calls that end the process, where an error is due: no fault of the device's.

`nox -s ops -- --ends` calls every operator with arguments drawn from its
schema; most are refused, and results are not looked at. Each operator has a
process of its own. A call that ends it is made on the CPU, where some kernels
end it, too; what else is not to be mended is in ENDS.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import random
import signal
import tempfile
import warnings
from collections.abc import Iterable
from fnmatch import fnmatch
from typing import Any

import torch

import torch_openreg  # noqa: F401

CALLS = 24  # of one operator
SECONDS = 20  # for one call
GIVE_UP = 3  # ends of one operator
SHAPES = [(), (0,), (2,), (4,), (2, 2), (4, 4), (2, 3, 4), (1, 2, 4, 4)]
SHAPES += [(1, 1, 2, 4, 4)]
DTYPES = [torch.float32] * 8 + [torch.int64, torch.int32, torch.bool]
DTYPES += [torch.float16, torch.bfloat16, torch.complex64, torch.uint8]
WORDS = "mean none sum linear nearest ij,jk->ik reflect floor trunc right tanh"
# What is drawn for an argument, first by a part of its name.
VALUES: dict[str, list[Any]] = {
    "dtype": [torch.float32, torch.int64, torch.float16, torch.quint8],
    "layout": [torch.strided],
    "memory_format": [torch.contiguous_format],
    "pin_memory": [False],
    "int": [0, 1, 1, 2, 2, 3, 4, -1, 8],
    "SymInt": [0, 1, 1, 2, 2, 3, 4, -1, 8],
    "float": [0.0, 0.5, 1.0, 2.0],
    "number": [0, 1, 2, 0.5, 1.5],
    "bool": [False, True],
    "str": WORDS.split(),
    "Generator": [None],
}
# Of no device, or with names of processes and groups among their arguments.
ELSEWHERE = (
    *("prim", "onnx", "profiler", "symm_mem", "c10d", "_c10d"),
    *("rngprim", "inductor"),
)

FOLLOWS = (
    "TorchScript's interpreter has this function, which follows the pointer of "
    "any tensor. It has no dispatch key, so nothing can be registered for it."
)
COMPOSED = (
    "It follows the pointer of the shape, which has to be on the CPU. A kernel "
    "of ours would take its derivative away."
)
READS = (
    "TorchScript's interpreter reads the dtype also where none is given, on "
    "the CPU, too: what lies there decides how that ends."
)
# Operators whose calls may end the process, and why nothing mends that.
ENDS = {
    "aten::_tensor_to_list.default": FOLLOWS,
    "aten::_reshape_from_tensor.default": COMPOSED,
    "aten::to.prim_Device": READS,
    "aten::to.prim_dtype": READS,
}


class Draw:
    """The arguments of one call; an equal seed draws equal ones."""

    def __init__(self, device: str, seed: str) -> None:
        self.device = device
        self.random = random.Random(seed)
        self.dtype = self.random.choice(DTYPES)
        self.shape = self.random.choice(SHAPES)

    def tensor(self) -> torch.Tensor:
        """Mostly alike within a call, so that some calls get far."""
        chance, choice = self.random.random, self.random.choice
        dtype = self.dtype if chance() < 0.6 else choice(DTYPES)
        shape = self.shape if chance() < 0.7 else choice(SHAPES)
        made = torch.ones(shape, dtype=dtype)
        if chance() < 0.03 and dtype == torch.float32:
            made = torch.quantize_per_tensor(made, 1.0, 0, torch.quint8)
        elif chance() < 0.03:
            made = made.to_sparse()
        return made.to(self.device)

    def value(self, kind: str, name: str) -> Any:
        if kind.startswith("Optional["):
            inner = kind.removeprefix("Optional[")[:-1]
            none = self.random.random() < 0.4
            return None if none else self.value(inner, name)
        if kind.startswith("List["):
            count = self.random.choice([1, 1, 2, 2, 3, len(self.shape)])
            inner = kind.removeprefix("List[")[:-1]
            return [self.value(inner, name) for _ in range(count)]
        if kind in ("Tensor", "Any", "t"):
            return self.tensor()
        if kind == "Device":
            return torch.device(self.device)
        if kind == "Storage":
            return self.tensor().untyped_storage()
        named = [values for part, values in VALUES.items() if part in name]
        return self.random.choice(named[0] if named else VALUES[kind])


@functools.cache
def operators() -> dict[str, torch.FunctionSchema]:
    """Those that take a tensor or name a device, by name and overload."""
    return {
        f"{schema.name}.{schema.overload_name or 'default'}": schema
        for schema in torch._C._jit_get_all_schemas()
        if not schema.name.startswith(ELSEWHERE)
        and any(
            word in str(argument.type)
            for argument in schema.arguments
            for word in ("Tensor", "Device")
        )
    }


def call(
    name: str, schema: torch.FunctionSchema, device: str, seed: int
) -> None:
    """One call; the arguments that have defaults are given half the time."""
    draw = Draw(device, f"{name} {seed}")
    given = {
        argument.name: draw.value(str(argument.type), argument.name)
        for argument in schema.arguments
        if not argument.has_default_value() or draw.random.random() < 0.5
    }
    space, packet, overload = name.replace("::", ".").split(".")
    getattr(getattr(getattr(torch.ops, space), packet), overload)(**given)
    if device != "cpu":
        torch.accelerator.synchronize()


def run(name: str, device: str, seeds: Iterable[int]) -> tuple[int, str]:
    """How many calls a process began, and the signal that ended it, or ""."""
    schema = operators()[name]
    reader, writer = os.pipe()
    if not (child := os.fork()):
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        torch.set_num_threads(1)
        for seed in seeds:
            os.write(writer, b".")
            signal.alarm(SECONDS)
            with contextlib.suppress(BaseException):
                call(name, schema, device, seed)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        begun = len(pipe.read())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end = signal.Signals(-status).name if status < 0 else f"exit {status}"
    return begun, end if status else ""


def examine(name: str) -> tuple[int, list[str]]:
    """How many calls were made of an operator, and which ended the process."""
    made, ended = 0, list[str]()
    while made < CALLS and len(ended) < GIVE_UP:
        begun, end = run(name, "openreg", range(made, CALLS))
        made += max(begun, 1)
        if end:
            seed = made - 1
            host = run(name, "cpu", [seed])[1]
            says = f"on the CPU, {host}" if host else ENDS.get(name, "a fault")
            ended.append(f"{name}, call {seed}: {end}; {says}")
    return made, ended


def main(pattern: str) -> int:
    """Prints what ended; 1 if something did so on the device alone."""
    warnings.simplefilter("ignore")
    names = [name for name in operators() if fnmatch(name, pattern)]
    calls, lines = 0, []
    with (
        tempfile.TemporaryDirectory() as folder,  # some calls write files
        contextlib.chdir(folder),
        multiprocessing.get_context("fork").Pool() as pool,
    ):
        for made, ended in pool.imap(examine, names, chunksize=8):
            calls += made
            lines += ended
            print(*ended, sep="\n", end="\n" * bool(ended), flush=True)
    faults = sum(line.endswith("a fault") for line in lines)
    print(
        f"{len(names)} operators, {calls} calls: {len(lines)} ended the "
        f"process, of which {faults} are faults."
    )
    return min(faults, 1)
