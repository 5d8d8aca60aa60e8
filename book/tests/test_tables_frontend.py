"""What PyTorch looks up in a device's module, and what it does without it."""

import doctest
import re
import warnings
from pathlib import Path

import pytest
import torch

import left_out
from _fresh import prints
from tables import checklist, frontend

ROOT = Path(torch.__file__).parent

# Reaches the lookup; the value of the last line is the answer.
USES = {
    "_initialized": """
import torch.utils.checkpoint
x = torch.ones(1000, device="openreg", requires_grad=True)
y = torch.utils.checkpoint.checkpoint(
    torch.dropout, x, 0.5, True, use_reentrant=False
)
y.sum().backward()
torch.equal(x.grad, y)
""",
    "is_initialized": """
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
meta = torch.empty(1, device="meta")
FakeTensor(FakeTensorMode(), meta, torch.device("openreg")).device
""",
    "is_available": "torch.accelerator.is_available()",
    "device_count": "torch.accelerator.device_count()",
    "current_device": """
with torch.openreg.device(1):
    x = torch.ones(1).openreg()
x.device
""",
    "device": """
storage = torch.ones(1).untyped_storage()
storage.to(device=torch.device("openreg")).device
""",
    "synchronize": """
calls = []
if hasattr(torch.openreg, "synchronize"):
    torch.openreg.synchronize = lambda: calls.append(1)
with torch.autograd.profiler.profile(use_device="openreg"):
    pass
len(calls)
""",
    "get_device_properties": """
torch._utils._get_devices_properties([0])[0].name
""",
    "_is_in_bad_fork": "torch.manual_seed(1).initial_seed()",
    "manual_seed_all": "torch.manual_seed(1).initial_seed()",
    "get_rng_state": """
with torch.random.fork_rng([0]):
    pass
True
""",
    "set_rng_state": """
with torch.random.fork_rng([0]):
    pass
True
""",
    "default_generators": """
from torch._prims.rng_prims import _impl_graphsafe_rng
_impl_graphsafe_rng(torch.rand, 1, rng_state=torch.Generator("openreg"))
""",
    "_get_generator": """
from torch._functorch._aot_autograd.utils import get_default_generator
get_default_generator(torch.device("openreg"))
""",
    "get_amp_supported_dtype": """torch.autocast("openreg").device""",
    "_utils": """
import io
file = io.BytesIO()
torch.save(torch.ones(1), file)
file.seek(0)
torch.load(file, map_location="openreg:1").device
""",
    "sparse": """torch.ones(1, device="openreg").untyped_storage().is_sparse""",
    "FloatStorage": """
warnings.simplefilter("ignore")  # that typed storages are deprecated
torch.ones(1, device="openreg").storage_type()
""",
}
# Rows whose answer is the same with and without the name.
HARMLESS = {"_get_generator", "_utils", "sparse", "FloatStorage"}


def answer(code: str) -> str:
    return left_out.answer(code, {"torch": torch, "warnings": warnings})


def says(row: frontend.Lookup, text: str) -> bool:
    checker = doctest.OutputChecker()
    return checker.check_output(row.without, text, doctest.ELLIPSIS)


@pytest.mark.parametrize(
    "row",
    [row for row in frontend.LOOKUPS if row.name != "_lazy_init"],
    ids=lambda row: row.name,
)
def test_without_the_name_pytorch_answers_as_the_row_says(
    row: frontend.Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.ones(1, device="openreg")
    for name in vars(torch.openreg).copy():  # put back what a use replaces
        monkeypatch.setattr(torch.openreg, name, getattr(torch.openreg, name))
    with_it = answer(USES[row.name])
    monkeypatch.undo()
    monkeypatch.delattr(torch.openreg, row.name, raising=False)
    without = answer(USES[row.name])
    assert says(row, without), without
    assert says(row, with_it) == (row.name in HARMLESS), with_it


EARLY_SEED = """
import torch
{change}
torch.manual_seed(5)
x = torch.rand(1, device="openreg").item()
print(torch.openreg.is_initialized(), x == torch.rand(1).item())
"""


def test_without_lazy_init_early_seeds_are_lost() -> None:
    (row,) = (row for row in frontend.LOOKUPS if row.name == "_lazy_init")
    for change, printed in (
        ("", "True True\n"),
        ("del torch.openreg._lazy_init", f"{row.without} False\n"),
    ):
        assert prints(EARLY_SEED.format(change=change)) == printed


def test_the_checklist_names_the_tests_above() -> None:
    rows = [
        line for line in checklist.checklist().splitlines() if __name__ in line
    ]
    named = [re.findall(r"\.py::(\w+)", row)[0] for row in rows]
    assert len(named) == len(frontend.LOOKUPS)
    assert set(named) <= set(globals())
    assert named.count("test_without_lazy_init_early_seeds_are_lost") == 1


@pytest.mark.parametrize("row", frontend.LOOKUPS, ids=lambda row: row.name)
def test_the_files_of_a_row_name_it(row: frontend.Lookup) -> None:
    for file in row.files.split():
        if file.startswith("csrc/"):  # the lookup is in the library beside it
            assert (ROOT / "include" / "torch" / file).is_file()
            library = (ROOT / "lib" / "libtorch_python.so").read_bytes()
            assert row.name.encode() + b"\0" in library
        elif row.name == "FloatStorage":  # the name is made from a dtype
            assert "getattr(module, storage_name)" in (ROOT / file).read_text()
        else:
            assert row.name in (ROOT / file).read_text()


ELSEWHERE = ("distributed", "_dynamo", "_inductor", "testing", "cuda", "xpu")


def test_no_lookup_lacks_a_row() -> None:
    folders = [p for p in ROOT.iterdir() if p.name not in ELSEWHERE]
    files = [p for p in folders if p.suffix == ".py"]
    files += [p for folder in folders for p in folder.rglob("*.py")]
    found = frontend.find_lookups(files)
    rows = {row.name: row.files.split() for row in frontend.LOOKUPS}
    assert set(found) <= set(rows)
    for name, users in found.items():
        paths = [file.relative_to(ROOT).as_posix() for file in users]
        assert set(paths) <= set(rows[name]), name


def test_further_lookups_name_what_is_missing() -> None:
    lines = frontend.further_lookups().splitlines()[2:]
    cells = {line.split("|")[1].strip(" `"): line for line in lines}
    assert {"Stream", "current_stream", "set_device"} <= set(cells)
    assert cells["set_device"].endswith("| yes |")
    for name, line in cells.items():
        assert ("| yes |" in line) == hasattr(torch.openreg, name)


MOVED = {
    "torch.Tensor": lambda: torch.ones(2),
    "torch.nn.modules.module.Module": lambda: torch.nn.Linear(1, 1),
    "torch.nn.utils.rnn.PackedSequence": lambda: (
        torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1)])
    ),
    "torch.storage.UntypedStorage": lambda: torch.ones(2).untyped_storage(),
    "torch.storage.TypedStorage": lambda: torch.ones(2)._typed_storage(),
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_the_classes_of_the_generated_methods_can_move() -> None:
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in frontend.generated_methods().splitlines()[2:]
    ]
    assert {name for name, _, _ in rows} == set(MOVED)
    for name, moves, tells in rows:
        assert moves == "yes"
        moved = MOVED[name]().openreg(1)
        inside = moved.weight if hasattr(moved, "weight") else moved
        device = getattr(inside, "device", None) or inside.data.device
        assert device == torch.device("openreg:1")
        assert hasattr(moved, "is_openreg") == (tells == "yes")
        assert getattr(moved, "is_openreg", True)
