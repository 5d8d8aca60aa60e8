"""Processes that form a group, for tests of torch.distributed.

All are forked from one that has loaded the backend and not used it, so each
costs little more than what it does. They share nothing but a file, in which
they find each other.
"""

from __future__ import annotations

import tempfile
import textwrap

import _fresh
from _examples import EXAMPLES

# What the code of a rank may use. The first rank waits for the others.
BEGIN = """
import atexit, contextlib, os, sys, warnings
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch_openreg import openreg
from torch_openreg.openreg.testing import Gate

size, folder = int(sys.argv[1]), sys.argv[2]
exec(sys.argv[3])  # what takes long, once for all
BOTH = "cpu:gloo,openreg:orccl"
children, rank = [], 0
for other in range(1, size):
    if not (child := os.fork()):
        children, rank = [], other
        break
    children.append(child)

def end():
    if hasattr(sys, "last_value"):  # nobody waits for one that has failed
        for child in children:
            os.kill(child, 9)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses) and not expendable:
        print("statuses of the other ranks:", statuses, flush=True)
        os._exit(1)

atexit.register(end)
expendable = False  # whether the others may end as they like
openreg.set_device(rank % openreg.device_count())
torch.set_num_threads(1)

def begin(backend=None, name="all", **settings):
    settings = {"timeout": timedelta(seconds=600)} | settings
    store = dist.FileStore(f"{folder}/{name}", size)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, **settings
    )

def refuses(call, *words):
    try:
        call()
    except Exception as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, (missing, type(error), str(error))
        return type(error)
    raise AssertionError(f"{words} was not raised")
"""


def run(code: str, size: int = 2, first: str = "", **environment: str) -> str:
    """Runs `code` in each rank of a new group; returns what they print.

    What `first` imports has been imported before there are ranks.
    """
    source = BEGIN + f"EXAMPLES = {str(EXAMPLES)!r}\n" + textwrap.dedent(code)
    with tempfile.TemporaryDirectory() as folder:
        return _fresh.prints(source, str(size), folder, first, **environment)
