"""The table of book/chapters/python-backend.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table


class Limit(NamedTuple):
    what: str
    probe: str  # Python; `x` is a matrix of 2 x 3 on the device `toy`
    says: str  # its value, or how its error begins


PYTHON_LIMITS = [
    Limit(
        "The values are not in the storage.",
        "x.untyped_storage().nbytes()",
        "0",
    ),
    Limit(
        "So nothing that reads storages works.",
        "torch.save(x, io.BytesIO())",
        "RuntimeError: Attempted to set the storage of a tensor on device "
        '"cpu"',
    ),
    Limit(
        "There is no allocator.",
        "torch.accelerator.memory_allocated()",
        "RuntimeError: device_allocator INTERNAL ASSERT FAILED",
    ),
    Limit(
        "There is no pinned memory.",
        "torch.ones(2).pin_memory()",
        "NotImplementedError: You should register `PrivateUse1HooksInterface`",
    ),
    Limit(
        "A tensor is always contiguous, but its values may not be.",
        "x.t().stride()",
        "(2, 1)",
    ),
    Limit(
        "So a view may fail where another shape is asked for.",
        "x.t().reshape(-1)",
        "RuntimeError: view size is not compatible with input tensor's size",
    ),
    Limit(
        "There is one device, whatever the index.",
        "torch.ones(2, device='toy:1').device",
        "device(type='toy', index=0)",
    ),
    Limit(
        "There is one stream.",
        "torch.Stream('toy').stream_id",
        "0",
    ),
    Limit(
        "The host cannot wait for the device.",
        "torch.accelerator.synchronize()",
        "RuntimeError: Backend doesn't support synchronizing all streams",
    ),
    Limit(
        "There is no generator; the CPU's draws.",
        "torch.Generator('toy')",
        "NotImplementedError: You should register `PrivateUse1HooksInterface`",
    ),
    Limit(
        "There is no automatic mixed precision.",
        "torch.autocast('toy', torch.bfloat16)",
        "AssertionError: Tried to use AMP with the `toy` backend",
    ),
]


def python_limits() -> str:
    return table(
        ("Limit", "Call", "Its answer or error"),
        (
            (row.what, f"`{row.probe}`", f"`` {row.says} ``")
            for row in PYTHON_LIMITS
        ),
    )
