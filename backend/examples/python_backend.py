"""A backend in Python alone: the device `toy`.

A process has one device of this kind, so run it with
TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

import torch
from torch.utils import _pytree, backend_registration

# [py-python-backend-setup] Name, methods, device module, hooks and guard.
backend_registration._setup_privateuseone_for_python_backend("toy")
# [/py-python-backend-setup]


# [py-python-backend-make] A tensor of the device, and where its values are.
def make(values: torch.Tensor) -> torch.Tensor:
    """PyTorch keeps shape and dtype, we keep the values: with the storage.

    All tensors of one storage find them there, those of `detach()` too.
    """
    shape = tuple(values.shape)
    tensor = torch._C._acc.create_empty_tensor(shape, values.dtype)
    tensor.untyped_storage().values = values
    return tensor


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    return tensor.untyped_storage().values


# [/py-python-backend-make]


# [py-python-backend-kernels] Four kernels: two factories, a copy, a sum.
def empty(size, *, dtype=None, **options):
    return make(torch.empty(size, dtype=dtype))


def empty_strided(size, stride, *, dtype=None, **options):
    return make(torch.empty(size, dtype=dtype))


def copy_from(source, target, non_blocking=False):
    values_of(target).copy_(values_of(source))
    return target


def add(x, y, *, alpha=1):
    return make(torch.add(values_of(x), values_of(y), alpha=alpha))


library = torch.library.Library("aten", "IMPL", "PrivateUse1")
library.impl("empty.memory_format", empty)
library.impl("empty_strided", empty_strided)
library.impl("_copy_from", copy_from)
library.impl("add.Tensor", add)
# [/py-python-backend-kernels]


# [py-python-backend-fallback] Every other operator, on the values.
def fallback(operator, *args, **kwargs):
    entered = {}

    def enter(tensor):
        values = values_of(tensor)
        entered[id(values)] = tensor
        return values

    def leave(values):
        known = id(values) in entered
        return entered[id(values)] if known else make(values)

    args, kwargs = _pytree.tree_map_only(torch.Tensor, enter, (args, kwargs))
    result = operator(*args, **kwargs)
    for tensor in entered.values():
        if tensor.shape != values_of(tensor).shape:  # it was resized
            tensor.data = make(values_of(tensor))
    return _pytree.tree_map_only(torch.Tensor, leave, result)


everything_else = torch.library.Library("_", "IMPL")
everything_else.fallback(fallback, "PrivateUse1")
# [/py-python-backend-fallback]


# [py-python-backend-train] The rest is PyTorch.
def train(steps: int) -> float:
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1).to("toy")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    x = torch.rand(64, 2).to("toy")
    y = x.sum(1, keepdim=True)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


# [/py-python-backend-train]

if __name__ == "__main__":
    x = torch.tensor([1.0, 2.0]).to("toy")
    print(x + x)
    x.view(2, 1)[1] = 7  # a view of the values, too
    print(x.cpu())
    print("learnt" if train(200) < 1e-3 else "not learnt")

# expect: ok
