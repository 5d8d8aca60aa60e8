"""torch.openreg.fallback: the operators that ran on the host, on copies.

An operator without a kernel for the device is run by the CPU: its tensors are
copied to the host and the results back. That is right, but slow, and it hides
what a backend still lacks; so it is counted, and can be made to warn or fail:
for the operators that `allow`, `warn` or `forbid` is given, or without a name
for all, which also forgets what was said of single ones. A name may leave the
overload out: "aten::add" stands for "aten::add.Tensor" and its kin.
"""

from __future__ import annotations

import torch

from torch_openreg import _C


def counts() -> dict[str, int]:
    """Returns the number of calls by operator since the last `reset`.

    An operator is named as in ``{"aten::foo.out": 3}``.
    """
    return _C._fallback_counts()


def reset() -> None:
    """Empties the counts, and lets each operator warn once more."""
    _C._reset_fallback_counts()


# [py-fallback-policy] A policy holds from the call on, or for a `with` block.
class _Policy:
    def __init__(self, word: str, operators: tuple[str, ...]) -> None:
        self._previous = everyone, named = _C._fallback_policy()
        if operators:
            _check_names(operators)
            added = dict.fromkeys(operators, word)
            _C._set_fallback_policy((everyone, named | added))
        else:
            _C._set_fallback_policy((word, {}))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _C._set_fallback_policy(self._previous)


# [/py-fallback-policy]


def _check_names(operators: tuple[str, ...]) -> None:
    known = torch._C._dispatch_get_all_op_names()
    names = {*known, *(name.partition(".")[0] for name in known)}
    for operator in operators:
        if operator not in names:
            raise ValueError(
                f"There is no operator {operator!r}; expected a name such as "
                f"'aten::add', or 'aten::add.Tensor' for one overload."
            )


def allow(*operators: str) -> _Policy:
    """Lets operators fall back quietly, as they all do at first."""
    return _Policy("allow", operators)


def warn(*operators: str) -> _Policy:
    """Warns once for each operator that falls back, until `reset`."""
    return _Policy("warn", operators)


def forbid(*operators: str) -> _Policy:
    """Makes each fallback a NotImplementedError that names the operator."""
    return _Policy("forbid", operators)
