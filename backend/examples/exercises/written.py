"""An exercise of the chapter The fallback: arguments that an operator writes.

The function below runs an operator on the host, and its results go to the
device. What the operator has written to its arguments is lost.

    nox -s tests -- backend/tests/judge.py -k written
"""

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only


def on_host(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs an operator such as `torch.ops.aten.add.Tensor` on copies."""

    def copy(tensor: Tensor) -> Tensor:
        return tensor.cpu()

    def back(tensor: Tensor) -> Tensor:
        return tensor.to("openreg")

    args, kwargs = tree_map_only(Tensor, copy, (args, kwargs))
    return tree_map_only(Tensor, back, operator(*args, **kwargs))


# expect: ok
