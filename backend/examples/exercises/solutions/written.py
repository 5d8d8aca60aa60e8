from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


# [py-written-solution] The schema says which of the copies go back.
def on_host(operator: Any, *args: Any, **kwargs: Any) -> Any:
    pairs: list[tuple[Tensor, Tensor]] = []  # of the device, and its copy

    def copy(tensor: Tensor) -> Tensor:
        for known, its_copy in pairs:
            if known is tensor:
                return its_copy
        pairs.append((tensor, tensor.cpu()))
        return pairs[-1][1]

    def back(result: Tensor) -> Tensor:
        for tensor, its_copy in pairs:
            if its_copy is result:
                return tensor
        return result.to("openreg")

    on_copies = tree_map_only(Tensor, copy, (args, kwargs))
    result = operator(*on_copies[0], **on_copies[1])
    given = dict(enumerate(args)) | kwargs
    for place, argument in enumerate(operator._schema.arguments):
        value = given.get(argument.name, given.get(place))
        if argument.alias_info and argument.alias_info.is_write:
            for tensor in tree_leaves(value):
                tensor.copy_(copy(tensor))
    return tree_map_only(Tensor, back, result)


# [/py-written-solution]

# expect: ok
