"""The tables of book/chapters/storage.md."""

from __future__ import annotations

from typing import NamedTuple

from tables.common import table

# Where a backend may keep a fact about a tensor, in the columns' order.
PLACES = "BackendMeta", "StorageImpl", "TensorImpl", "subclass"


class Survival(NamedTuple):
    what: str  # what happens to the tensor
    code: str  # the same for the test: x becomes ...
    kept: str  # a letter for each place, y or n, in the order of PLACES


SURVIVALS = [
    Survival("`x.add_(1)`", "x.add_(1)", "yyyy"),
    Survival("`x.detach()`", "x.detach()", "yyyy"),
    Survival("`x.data`", "x.data", "yyyy"),
    Survival("`torch.nn.Parameter(x)`", "torch.nn.Parameter(x)", "yyyy"),
    Survival("`x[:1]`, `x.t()`, any view", "x.t()", "nyny"),
    Survival("`y.set_(x)`", "new().set_(x)", "nynn"),
    Survival("`y.data = x`", "assign_data(x)", "yynn"),
    Survival("`x + 1`, a new tensor", "x + 1", "nnny"),
    Survival("`x.clone()`", "x.clone()", "nnny"),
    Survival('`x.to("openreg:1")`', "x.to('openreg:1')", "nnny"),
    Survival('`Module.to("openreg:1")`', "moved(x)", "nnny"),
    Survival("`copy.deepcopy(x)`", "copy.deepcopy(x)", "nnny"),
    Survival("`pickle`", "pickle.loads(pickle.dumps(x))", "ynny"),
    Survival("`torch.save`, `torch.load`", "loaded(x)", "ynny"),
    Survival(
        '`torch.load(..., map_location="cpu")`', "loaded(x, 'cpu')", "nnny"
    ),
    Survival("to another process", "sent(x)", "nnny"),
]


def survivals() -> str:
    """Which place keeps its fact through what."""
    words = {"y": "kept", "n": "-"}
    heads = (
        "`c10::BackendMeta`",
        "`c10::StorageImpl` of your own",
        "`c10::TensorImpl` of your own",
        "`torch.Tensor` subclass in Python",
    )
    return table(
        ("What becomes of `x`", *heads),
        ((s.what, *(words[letter] for letter in s.kept)) for s in SURVIVALS),
    )
