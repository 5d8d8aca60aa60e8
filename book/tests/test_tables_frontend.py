"""What PyTorch looks up in a device's module, and what it does without it."""

import doctest
import warnings
from pathlib import Path

import pytest
import torch
from _pages import text_of

import left_out
from _fresh import prints
from rows import Row, rows
from tables import frontend
from torch_openreg import openreg

ROOT = Path(torch.__file__).parent

LOOKUPS = rows("frontend")


def answer(code: str) -> str:
    return left_out.answer(code, {"torch": torch, "warnings": warnings})


def says(row: Row, text: str) -> bool:
    checker = doctest.OutputChecker()
    return checker.check_output(row.without, text, doctest.ELLIPSIS)


@pytest.mark.proves("frontend.*")
@pytest.mark.parametrize(
    "row",
    [row for row in LOOKUPS if row.key != "_lazy_init"],
    ids=lambda row: row.key,
)
def test_without_the_name_pytorch_answers_as_the_row_says(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.ones(1, device="openreg")
    for name in vars(openreg).copy():  # put back what a use replaces
        monkeypatch.setattr(openreg, name, getattr(openreg, name))
    with_it = answer(row.tried)
    monkeypatch.undo()
    monkeypatch.delattr(openreg, row.key, raising=False)
    without = answer(row.tried)
    assert says(row, without), without
    assert says(row, with_it) == bool(row.harmless), with_it


@pytest.mark.proves("frontend._lazy_init")
def test_without_lazy_init_early_seeds_are_lost() -> None:
    (row,) = (row for row in LOOKUPS if row.key == "_lazy_init")
    for change, printed in (
        ("", "True True\n"),
        ("del torch.openreg._lazy_init", f"{row.without} False\n"),
    ):
        code = f"import torch\n{change}\n{text_of('early_seed.txt')}"
        assert prints(code) == printed


@pytest.mark.parametrize("row", LOOKUPS, ids=lambda row: row.key)
def test_the_files_of_a_row_name_it(row: Row) -> None:
    for file in row.files.split():
        if file.startswith("csrc/"):  # the lookup is in the library beside it
            assert (ROOT / "include" / "torch" / file).is_file()
            library = (ROOT / "lib" / "libtorch_python.so").read_bytes()
            assert row.key.encode() + b"\0" in library
        elif row.key == "FloatStorage":  # the name is made from a dtype
            assert "getattr(module, storage_name)" in (ROOT / file).read_text()
        else:
            assert row.key in (ROOT / file).read_text()


ELSEWHERE = ("distributed", "_dynamo", "_inductor", "testing", "cuda", "xpu")


def test_no_lookup_lacks_a_row() -> None:
    folders = [p for p in ROOT.iterdir() if p.name not in ELSEWHERE]
    files = [p for p in folders if p.suffix == ".py"]
    files += [p for folder in folders for p in folder.rglob("*.py")]
    found = frontend.find_lookups(files)
    known = {row.key: row.files.split() for row in LOOKUPS}
    assert set(found) <= set(known)
    for name, users in found.items():
        paths = [file.relative_to(ROOT).as_posix() for file in users]
        assert set(paths) <= set(known[name]), name


def test_further_lookups_name_what_is_missing() -> None:
    lines = frontend.further_lookups().splitlines()[2:]
    cells = {line.split("|")[1].strip(" `"): line for line in lines}
    assert {"Stream", "current_stream", "set_device"} <= set(cells)
    assert cells["set_device"].endswith("| yes |")
    for name, line in cells.items():
        assert ("| yes |" in line) == hasattr(openreg, name)


@pytest.mark.parametrize(
    "row", rows("frontend_methods.classes"), ids=lambda row: row.made
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_an_object_of_a_class_with_generated_methods_moves(row: Row) -> None:
    x = eval(row.made)
    assert isinstance(x, eval(vars(row)["class"]))
    assert row.moves == "yes"
    moved = x.openreg(1)
    inside = moved.weight if hasattr(moved, "weight") else moved
    device = getattr(inside, "device", None) or inside.data.device
    assert device == torch.device("openreg:1")
    assert hasattr(moved, "is_openreg") == (row.tells == "yes")
    assert getattr(moved, "is_openreg", True)
