"""torch.openreg.fallback: the operators that ran on the host, on copies.

An operator without a kernel for the device is run by the CPU: its tensors are
copied to the host and the results back. That is right, but slow, and it hides
what a backend still lacks; so it is counted, and can be made to warn or fail.
"""

from __future__ import annotations

from types import TracebackType

from torch_openreg import _C


# [py-fallback-counts] Which operators fell back, and how often.
def counts() -> dict[str, int]:
    """Returns the number of calls by operator since the last `reset`.

    An operator is named as in ``{"aten::foo.out": 3}``.
    """
    return _C._fallback_counts()


def reset() -> None:
    """Empties the counts, and lets each operator warn once more."""
    _C._reset_fallback_counts()


# [/py-fallback-counts]


# [py-fallback-mode] A mode holds from the call on, or for a `with` block.
class _Mode:
    def __init__(self, mode: str) -> None:
        self._previous = _C._set_fallback_mode(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C._set_fallback_mode(self._previous)


def allow() -> _Mode:
    """Lets operators fall back quietly, as they do at first."""
    return _Mode("allow")


def warn() -> _Mode:
    """Warns when an operator falls back for the first time since `reset`."""
    return _Mode("warn")


def forbid() -> _Mode:
    """Makes each fallback a NotImplementedError that names the operator."""
    return _Mode("forbid")


# [/py-fallback-mode]
