"""The Python frontend: names, generated methods, and what PyTorch looks up."""

from __future__ import annotations

import ast
import importlib
import io
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_openreg

openreg = torch.openreg
TORCH = Path(torch.__file__).parent


@pytest.mark.proves(
    "checklist.rename_privateuse1_backend",
    "checklist.generate_methods_for_privateuse1_backend",
)
def test_the_backend_has_its_name_everywhere():
    assert torch._C._get_privateuse1_backend_name() == "openreg"
    assert str(torch.ones(1, device="openreg").device) == "openreg:0"
    assert torch.profiler.ProfilerActivity.OPENREG.name == "OPENREG"


@pytest.mark.proves("checklist._register_device_module")
def test_the_module_is_found_under_every_name():
    assert torch.openreg is torch_openreg.openreg
    assert torch.get_device_module("openreg") is torch.openreg
    assert torch.get_device_module() is torch.openreg


FILES = sorted(Path(openreg.__file__).parent.glob("*.py"))
MODULES = [file.stem for file in FILES if file.stem != "__init__"]


@pytest.mark.parametrize("name", MODULES)
def test_each_of_its_modules_is_one_whichever_way_it_is_imported(name):
    here = importlib.import_module(f"torch.openreg.{name}")
    assert here is importlib.import_module(f"torch_openreg.openreg.{name}")
    assert here is getattr(openreg, name)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_needs_the_package_that_gathers_them(name):
    """Or their order would matter, and an import could find half of it."""
    tree = ast.parse(Path(openreg.__file__).with_name(f"{name}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            assert "*" not in names
            assert node.module != "torch_openreg" or "openreg" not in names


# What PyTorch looks up on the module of a device, and where it does.
LOOKED_UP = {
    "_is_in_bad_fork": ("random.py", '"_is_in_bad_fork"'),
    "manual_seed_all": ("random.py", '"manual_seed_all"'),
    "device_count": ("random.py", "device_mod.device_count()"),
    "get_rng_state": ("random.py", "device_mod.get_rng_state(device)"),
    "set_rng_state": ("random.py", "device_mod.set_rng_state("),
    "get_amp_supported_dtype": (
        "amp/autocast_mode.py",
        "custom_device_mod.get_amp_supported_dtype()",
    ),
    "is_available": ("_utils.py", "custom_device_mod.is_available()"),
    "current_device": ("_utils.py", "m.current_device()"),
    "device": ("_utils.py", "with device_module.device(device):"),
    "is_initialized": (
        "_subclasses/fake_tensor.py",
        "getattr(torch, device.type).is_initialized()",
    ),
    "_initialized": ("utils/checkpoint.py", '"_initialized", False'),
    "synchronize": ("autograd/profiler.py", "device_module.synchronize()"),
    "default_generators": ("_prims/rng_prims.py", '"default_generators"'),
    "get_device_name": ("_dynamo/package.py", ".get_device_name()"),
    "_utils": ("serialization.py", "device_module._utils._get_device_index"),
    "_lazy_init": ("lib/libtorch_python.so", "_lazy_init"),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_what_pytorch_looks_up_is_there(name):
    file, text = LOOKED_UP[name]
    assert text.encode() in (TORCH / file).read_bytes()
    assert hasattr(openreg, name)


class TestGeneratedMethods:
    def test_tensors(self):
        x = torch.ones(2)
        assert not x.is_openreg
        y = x.openreg(1)
        assert y.is_openreg
        assert y.device == torch.device("openreg:1")
        assert y.openreg(torch.device("openreg:1")) is y
        assert x.openreg().device.index == 0
        with pytest.raises(RuntimeError, match="Invalid device"):
            x.openreg("cpu")

    def test_modules(self):
        module = nn.Linear(2, 2).openreg(1)
        assert {p.device.index for p in module.parameters()} == {1}
        assert next(module.cpu().parameters()).device.type == "cpu"

    def test_storages(self):
        storage = torch.arange(3.0).untyped_storage()
        assert not storage.is_openreg
        moved = storage.openreg(1)
        assert moved.is_openreg
        assert moved.device == torch.device("openreg:1")
        assert moved.cpu().tolist() == storage.tolist()

    @pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
    def test_typed_storages(self):
        moved = torch.arange(3.0).storage().openreg()
        assert moved.is_openreg
        assert moved.dtype == torch.float32

    def test_packed_sequences(self):
        packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
        assert not packed.is_openreg
        moved = packed.openreg()
        assert moved.is_openreg
        assert moved.data.device.type == "openreg"
        padded, lengths = nn.utils.rnn.pad_packed_sequence(moved)
        assert padded.tolist() == [[1, 1], [1, 1], [1, 0]]
        assert lengths.tolist() == [3, 2]


def test_set_default_device():
    torch.set_default_device("openreg:1")
    try:
        assert torch.ones(2).device == torch.device("openreg:1")
        assert nn.Linear(1, 1).weight.is_openreg
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"


def test_with_torch_device():
    with torch.device("openreg"):
        assert torch.rand(2).is_openreg
        with torch.device("cpu"):
            assert not torch.rand(2).is_openreg
    assert not torch.rand(2).is_openreg


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_deterministic_algorithms_fill_empty(dtype):
    torch.use_deterministic_algorithms(True)
    try:
        for make in (
            lambda device: torch.empty(64, dtype=dtype, device=device),
            lambda device: torch.empty_strided(
                (8, 4), (1, 8), dtype=dtype, device=device
            ),
            lambda device: torch.ones(2, dtype=dtype, device=device).resize_(
                64
            )[2:],
        ):
            x, expected = make("openreg").cpu(), make("cpu")
            assert torch.equal(x.isnan(), expected.isnan())
            assert torch.equal(x.nan_to_num(), expected.nan_to_num())
    finally:
        torch.use_deterministic_algorithms(False)


def save_and_load(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return torch.load(file, **options)


def test_saved_tensors_come_back_to_their_device():
    x = torch.arange(3).openreg(1)
    assert save_and_load(x).device == x.device
    assert save_and_load(x, map_location="cpu").device.type == "cpu"
    assert save_and_load(x.cpu(), map_location="openreg:1").equal(x)
    with pytest.raises(RuntimeError, match=re.escape("device_count() is 2")):
        save_and_load(x, map_location="openreg:2")


@pytest.mark.proves("messages.a-device-with-an")
def test_an_index_is_read_from_names_devices_and_numbers():
    read = openreg._utils._get_device_index
    assert read(1) == read("openreg:1") == read(torch.device("openreg:1")) == 1
    openreg.set_device(1)
    assert read("openreg", optional=True) == read(None, optional=True) == 1
    for unindexed in ("openreg", None):
        with pytest.raises(ValueError, match="a device with an index"):
            read(unindexed)


def test_fake_tensors_know_the_current_device():
    from torch._subclasses.fake_tensor import FakeTensorMode

    openreg.set_device(1)
    with FakeTensorMode():
        x = torch.empty(2, 3, device="openreg")
        assert (x + x).device == torch.device("openreg:1")


KINDS = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


def test_each_name_for_a_dtype_that_cuda_has_is_here():
    names = {name for name in dir(torch.cuda) if name.endswith("Tensor")}
    assert names == {f"{kind}Tensor" for kind in KINDS}
    assert names == {name for name in dir(openreg) if name.endswith("Tensor")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_for_a_dtype_makes_tensors_and_knows_them(kind):
    named = getattr(openreg, f"{kind}Tensor")
    assert (named.dtype, named.layout) == (KINDS[kind], torch.strided)
    x = named([1, 0])
    assert (x.dtype, x.device.index) == (KINDS[kind], 0)
    assert x.tolist() == [1, 0]
    assert named(2, 3).shape == (2, 3)
    assert named(2, device="openreg:1").device.index == 1
    assert named(x).data_ptr() == x.data_ptr()
    assert x.type() == f"torch.openreg.{kind}Tensor"
    assert isinstance(x, named)
    for other in x.cpu(), x.to(torch.complex64), x.to_sparse(), 1:
        assert not isinstance(other, named)
    for name in named, x.type():
        assert torch.equal(torch.ones(2).type(name).cpu(), x.new_ones(2).cpu())
        assert isinstance(torch.ones(2).type(name), named)


def test_a_name_for_a_dtype_takes_nothing_of_another_device():
    with pytest.raises(TypeError, match="device=cpu"):
        openreg.FloatTensor(torch.ones(1))
    with pytest.raises(ValueError, match="Expected an openreg device"):
        openreg.FloatTensor(1, device="cpu")


def test_an_error_of_memory_has_the_name_that_cudas_has():
    assert openreg.OutOfMemoryError is torch.OutOfMemoryError
    with pytest.raises(openreg.OutOfMemoryError):
        torch.empty(2**45, dtype=torch.uint8, device="openreg")
