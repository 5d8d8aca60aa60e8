"""Judges what a reader has written for an exercise of the book.

`nox -s tests -- backend/tests/judge.py -k rounding` judges the file of that
name in backend/examples/exercises. Pytest does not find this file by itself,
as what stands there is only begun; test_exercises.py runs the judges.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from _device import compiler
from _examples import EXAMPLES

FOLDER = EXAMPLES / "exercises"
Judge = Callable[[Path], None]
JUDGES: dict[str, Judge] = {}


def judges(judge: Judge) -> Judge:
    """Notes a judge under the name of its exercise."""
    JUDGES[judge.__name__] = judge
    return judge


@contextmanager
def compiled(file: Path) -> Iterator[Path]:
    """The library of an answer in C++."""
    flags = "-std=c++20", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, file.stem).with_suffix(".so")
        command = [*compiler(), *flags, str(file), "-o", str(made)]
        ran = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        assert ran.returncode == 0, f"it does not compile:\n{ran.stderr}"
        yield made


def library(file: Path) -> ctypes.CDLL:
    with compiled(file) as made:
        return ctypes.CDLL(str(made))


def module(file: Path) -> Any:
    """An answer in Python, imported anew."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@judges
def current_device(file: Path) -> None:
    device = library(file)
    set_device, get = device.set_device, device.get_device
    set_device.restype = ctypes.c_bool
    assert set_device(1), "device 1 was refused"
    assert get() == 1, "device 1 was set and is not current"
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(get()))
    thread.start()
    thread.join()
    assert seen == [0], f"a new thread begins on device {seen[0]}, not on 0"
    for index in 3, -1, 2**31 - 1, -(2**31):
        assert not set_device(index), f"device {index} was accepted"
        assert get() == 1, f"device {index} was refused, and then current"
    exchange = device.maybe_exchange_device
    assert (exchange(2), get()) == (1, 2), "exchange 1 for 2"
    assert exchange(-1) == -1, "exchange for -1 returns -1"
    assert get() == 2, "exchange for -1 has changed the device"


@judges
def pinned(file: Path) -> None:
    table = library(file)
    word = ctypes.c_size_t
    table.pinned.argtypes = word, word
    table.unpinned.argtypes = (word,)
    table.is_pinned.argtypes, table.is_pinned.restype = (word,), ctypes.c_bool
    assert not table.is_pinned(4096), "an empty table has pinned memory"
    table.pinned(4096, 100)
    table.pinned(8192, 100)
    for address, what in {
        4096: "the first byte of a block",
        4100: "a byte in the middle of a block",
        4195: "the last byte of a block",
        8192: "the first byte of another block",
        8291: "the last byte of the last block",
    }.items():
        assert table.is_pinned(address), f"{what} is not pinned"
    for address, what in {
        4095: "the byte before the first block",
        4196: "the byte after a block",
        8292: "the byte after the last block",
        2**64 - 1: "the last address of all",
    }.items():
        assert not table.is_pinned(address), f"{what} is pinned"
    table.unpinned(4096)
    assert not table.is_pinned(4100), "a block that was freed is still pinned"
    assert table.is_pinned(8192), "another block was freed, and this one too"


class Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


@judges
def rounding(file: Path) -> None:
    cache = library(file)
    cache.take.argtypes = (ctypes.c_size_t,)
    cache.take.restype = ctypes.POINTER(Block)
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.argtypes, usable.restype = (ctypes.c_void_p,), ctypes.c_size_t

    def take(size: int) -> Any:
        block = cache.take(size)
        room = usable(block.contents.address)
        assert room >= size, f"{size} bytes were asked for, and {room} given"
        return block

    def served_by(size: int, block: Any) -> bool:
        address = block.contents.address
        cache.give_back(block)
        again = take(size)
        same: bool = again.contents.address == address
        cache.give_back(again)
        return same

    first = take(1000)
    assert served_by(999, first), "a block of 1000 bytes did not serve 999"
    first = take(600)
    assert served_by(1024, first), "a block of 600 bytes did not serve 1024"
    assert not served_by(1025, take(1024)), "a block of 1024 bytes served 1025"
    assert not served_by(512, take(513)), "a block of 513 bytes served 512"
    one, two = take(1), take(1)
    assert one.contents.address != two.contents.address, "a block has two users"


@contextmanager
def registered(space: str, name: str, kernel: Any) -> Iterator[None]:
    """The device has this kernel while the block runs."""
    library = torch.library.Library(space, "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden
        library.impl(name, kernel, "PrivateUse1", allow_override=True)
    try:
        yield
    finally:
        library._destroy()


@judges
def dropout(file: Path) -> None:
    with registered("aten", "native_dropout", module(file).native_dropout):
        for dtype in torch.float32, torch.float16:
            drops(torch.ones(1000, device="openreg", dtype=dtype))
        x = torch.ones(50, device="openreg", requires_grad=True)
        y, _ = torch.native_dropout(x, 0.5, True)
        y.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, y), "the gradient is not that of the result"


def drops(x: torch.Tensor) -> None:
    torch.manual_seed(5)
    host = torch.get_rng_state()
    y, mask = torch.native_dropout(x, 0.75, True)
    assert mask.dtype == torch.bool, f"the mask is of {mask.dtype}"
    assert y.dtype == x.dtype, f"the result of {x.dtype} is of {y.dtype}"
    kept = int(mask.sum())
    assert 150 < kept < 350, f"p = 0.75 kept {kept} elements of 1000"
    values = set(y[mask].tolist())
    assert values == {4.0}, f"p = 0.75 has made {values} of a kept 1"
    assert not y[~mask].any(), "a dropped element is not 0"
    torch.manual_seed(5)
    again, _ = torch.native_dropout(x, 0.75, True)
    assert torch.equal(y, again), "one seed has given two masks"
    moved = not torch.equal(host, torch.get_rng_state())
    assert not moved, "the CPU's generator was drawn from"
    y, mask = torch.native_dropout(x, 1.0, True)
    assert not mask.any(), "p = 1 has kept an element"
    assert torch.equal(y, x * 0), f"p = 1 has made {y[0].item()} of a 1"
    y, mask = torch.native_dropout(x, 0.75, False)
    assert mask.all(), "an element was dropped without training"
    assert torch.equal(y, x), "a value was changed without training"
    y.zero_()
    assert x.all(), "without training the result is the argument itself"


def add_to(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.add_(x)


def double_all(xs: list[torch.Tensor]) -> None:
    for x in xs:
        x.mul_(2)


def double_and_add(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(2).add_(y)


OPERATORS: dict[str, Callable[..., Any]] = {
    "thirds(Tensor x) -> Tensor": lambda x: x / 3,
    "double_(Tensor(a!) x) -> Tensor(a!)": lambda x: x.mul_(2),
    "add_to(Tensor x, *, Tensor(a!) out) -> Tensor(a!)": add_to,
    "double_all_(Tensor(a!)[] xs) -> ()": double_all,
    "double_and_add_(Tensor(a!) x, Tensor y) -> ()": double_and_add,
}


@judges
def written(file: Path) -> None:
    on_host = module(file).on_host
    library = torch.library.Library("exercise", "DEF")
    for schema, kernel in OPERATORS.items():
        name = library.define(schema)
        library.impl(name, kernel, "CPU")
        operator = getattr(torch.ops.exercise, name).default
        library.impl(
            name,
            lambda *xs, operator=operator, **ys: on_host(operator, *xs, **ys),
            "PrivateUse1",
        )
    try:
        writes(torch.ops.exercise)
    finally:
        library._destroy()


def writes(ops: Any) -> None:
    def here(*values: float) -> torch.Tensor:
        return torch.tensor(values, device="openreg")

    y = ops.thirds(here(3, 6))
    assert y.device.type == "openreg", f"the result is on {y.device}"
    assert y.tolist() == [1, 2], f"a third of [3, 6] is {y.tolist()}"
    x = here(1, 2)
    y = ops.double_(x)
    assert x.tolist() == [2, 4], f"double_ has made {x.tolist()} of [1, 2]"
    assert y.data_ptr() == x.data_ptr(), "double_ did not return its argument"
    out = here(1, 1)
    ops.add_to(here(1, 2), out=out)
    assert out.tolist() == [2, 3], "what is written to `out=` is lost"
    whole = here(1, 1, 1, 1)
    ops.double_(whole[::2])
    assert whole.tolist() == [2, 1, 2, 1], "a view was not written through"
    xs = [here(1), here(2)]
    ops.double_all_(xs)
    assert [x.item() for x in xs] == [2, 4], "a list was not written back"
    x = here(1)
    ops.double_and_add_(x, x)
    assert x.item() == 4, "an argument given twice has two copies"
    x, y = here(1), here(1)
    ops.double_and_add_(x, y)
    assert (x.item(), y.item()) == (3, 1), "double_and_add_ is wrong"


@judges
def device_context(file: Path) -> None:
    device = module(file).device
    current = torch.accelerator.current_device_index

    def enter(where: Any, expected: int, *inside: Any) -> None:
        before = current()
        with where if isinstance(where, device) else device(where):
            assert current() == expected, f"{where!r} led to {current()}"
            if inside:
                enter(*inside)
        after = current()
        assert after == before, f"{before} was current, and then {after}"

    torch.accelerator.set_device_index(1)
    enter(0, 0)
    enter("openreg:0", 0, torch.device("openreg", 1), 1)
    enter("openreg", 1)
    twice = device(0)
    enter(twice, 0, 1, 1, twice, 0)
    with pytest.raises(KeyError), device(0):
        raise KeyError
    assert current() == 1, "after an exception the device is not restored"
    with pytest.raises(ValueError, match="cuda"):
        device("cuda:1")


@judges
def counter(file: Path) -> None:
    made = module(file)
    generator = made.Generator(7)
    whole = [made.mix(7, place) for place in range(5)]
    first, then = generator.draw(3), generator.draw(2)
    assert first == whole[:3], "places 0 to 2 have other numbers"
    assert then == whole[3:], "the second draw has not moved on"
    state = generator.get_state()
    ahead = generator.draw(4)
    generator.set_state(state)
    assert generator.draw(4) == ahead, "after set_state others are drawn"
    other = made.Generator()
    other.set_state(state)
    assert other.draw(4) == ahead, "a state has not carried the seed over"
    assert state.dtype == torch.uint8, f"the state is of {state.dtype}"
    for bad in state[:-1], state.float():
        with pytest.raises((TypeError, ValueError)):
            other.set_state(bad)
    generator.manual_seed(7)
    assert generator.draw(5) == whole, "a seed does not begin again"


@judges
def exports(file: Path) -> None:
    with compiled(file) as made:
        driver = ctypes.CDLL(str(made))
        command = ["nm", "-DC", "--defined-only", str(made)]
        told = subprocess.check_output(command, text=True)
    assert driver.orTwice(21) == 42, "orTwice(21) is not 42"
    before = driver.orCalls()
    driver.orTwice(1)
    assert driver.orCalls() == before + 1, "a call was not counted"
    names = {line.split(maxsplit=2)[2] for line in told.splitlines()}
    # The compiler has names of its own there, more so where it counts lines.
    written, names = file.read_text(), names - {"orTwice", "orCalls"}
    others = sorted(n for n in names if re.split(r"\W", n)[0] in written)
    assert not others, f"the library exports {', '.join(others)}"


@judges
def exchange_stream(file: Path) -> None:
    guard = library(file)
    get, exchange = guard.get_stream, guard.exchange_stream
    exchange.argtypes = ctypes.c_int, ctypes.c_int64
    get.restype = exchange.restype = ctypes.c_int64
    assert get(0) == 0, "at first the default stream is not current"
    assert exchange(1, 2**40) == 0, "the stream that was current is another"
    assert get(1) == 2**40, "the stream that was set is not current"
    assert get(0) == 0, "a stream of device 1 became current on device 0"
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(get(1)))
    thread.start()
    thread.join()
    assert seen == [0], "a new thread begins with a stream of another thread"
    assert exchange(1, 0) == 2**40, "the stream that was current is lost"
    assert get(1) == 0, "the default stream was set and is not current"


@judges
def next_stream(file: Path) -> None:
    pool = library(file)
    draw, is_high = pool.next_stream, pool.is_high
    draw.argtypes, draw.restype = (ctypes.c_int, ctypes.c_bool), ctypes.c_int64
    is_high.argtypes, is_high.restype = (ctypes.c_int64,), ctypes.c_bool
    normal = [draw(0, False) for _ in range(32)]
    assert len(set(normal)) == 32, f"32 requests got {len(set(normal))} streams"
    assert 0 not in normal, "the default stream was handed out"
    assert draw(0, False) == normal[0], "the 33rd stream is not the first again"
    high = [draw(0, True) for _ in range(32)]
    assert len({*normal, *high}) == 64, "the two priorities share a stream"
    told = [is_high(stream) for stream in (0, *normal, *high)]
    assert told == [False] * 33 + [True] * 32, "an id tells a wrong priority"
    draw(1, False)
    assert draw(0, False) == normal[1], "device 1 took a turn of device 0"
    seen: list[int] = []  # to which any thread may append
    turns = 32 * 20

    def ask() -> None:
        seen.extend(draw(1, True) for _ in range(turns))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = {stream: seen.count(stream) for stream in seen}
    even = set(times.values()) == {4 * turns // 32}
    assert even, f"threads at once got streams unevenly: {times}"


@judges
def event_marks(file: Path) -> None:
    device = library(file)
    query, is_over = device.query, device.is_over
    query.restype = is_over.restype = ctypes.c_bool
    assert query(0), "an event that was never recorded is not reached"
    before = device.wait(0)
    assert is_over(before), "a wait for an event without a record does not end"
    device.launch(0)
    device.record(0, 0)
    assert not query(0), "an event is reached before the work before it is done"
    first = device.wait(0)
    device.launch(0)
    device.record(1, 0)
    device.finish(0)
    assert query(0), "an event is not reached, though all before it is done"
    assert not query(1), "an event is reached as soon as one before it is"
    assert is_over(first), "a wait goes on, though its event is reached"
    device.record(0, 0)
    second = device.wait(0)
    assert not query(0), "an event that was recorded again is still reached"
    assert is_over(first), "a record has changed a wait that came before it"
    assert is_over(before), "a record has changed a wait for no record"
    assert not is_over(second), "a wait is over before the second record is"
    device.launch(1)
    device.record(0, 1)
    device.finish(0)
    assert is_over(second), "a record on another stream has changed a wait"
    assert not query(0), "an event is still that of the stream before"
    device.finish(1)
    assert query(0), "an event on another stream is not reached"


class Segment:
    """A driver that opens each segment once, and one of them never."""

    def __init__(self) -> None:
        self.opened: dict[int, bytes] = {}
        self.calls = 0

    def open(self, handle: bytes) -> int:
        self.calls += 1
        if handle == b"gone":
            raise RuntimeError("there is no such segment")
        assert handle not in self.opened.values(), "a segment was opened twice"
        self.opened[4096 * self.calls] = handle
        return 4096 * self.calls

    def close(self, address: int) -> None:
        assert address in self.opened, f"{address} was closed, which is no open"
        del self.opened[address]


@judges
def segments(file: Path) -> None:
    driver = Segment()
    ours = module(file).Segments(driver)
    here = ours.open(b"one")
    assert ours.open(b"one") == here, "one segment has two addresses"
    other = ours.open(b"other")
    assert other != here, "two segments have one address"
    ours.close(b"one")
    assert here in driver.opened, "a segment in use was closed"
    ours.close(b"one")
    assert here not in driver.opened, "a segment without users is still open"
    assert other in driver.opened, "another segment was closed"
    for handle in b"one", b"never":
        with pytest.raises(KeyError):
            ours.close(handle)
    assert ours.open(b"one") in driver.opened, "it cannot be opened once more"
    with pytest.raises(RuntimeError, match="no such segment"):
        ours.open(b"gone")
    with pytest.raises(KeyError):
        ours.close(b"gone")


@judges
def neg(file: Path) -> None:
    loop = library(file).neg

    def negate(to: torch.Tensor, x: torch.Tensor) -> None:
        pointers = (ctypes.c_void_p * 2)(to.data_ptr(), x.data_ptr())
        steps = (ctypes.c_int64 * 2)(4 * to.stride(0), 4 * x.stride(0))
        loop(pointers, steps, ctypes.c_int64(x.numel()))

    whole = torch.arange(1.0, 9)
    for x, what in {
        whole: "a contiguous argument",
        whole[::2]: "every second element",
        whole.view(2, 4).t()[1]: "a column",
        whole[:1].expand(4): "one element, repeated",
        whole[:0]: "no element",
    }.items():
        to = torch.zeros(len(x))
        negate(to, x)
        assert to.tolist() == (-x).tolist(), f"{what} has become {to.tolist()}"
    to = torch.zeros(8)
    negate(to[::2], whole[:4])
    assert to.tolist() == [-1, 0, -2, 0, -3, 0, -4, 0], "a result with gaps"
    x = torch.tensor([0.0, -0.0, float("inf")])
    negate(x, x)
    signs = torch.signbit(x).tolist()
    assert signs == [True, False, True], "0 has become 0, and not -0"


@judges
def version_check(file: Path) -> None:
    check = module(file).check

    def said(built: str, installed: str) -> str:
        """The message of the error, or nothing where there is none."""
        try:
            check(built, installed)
        except ImportError as error:
            return str(error)
        return ""

    for installed in "2.13.1", "2.13.1+cpu", "2.13.1+cu130":
        refused = said("2.13.1", installed)
        assert not refused, f"a build for 2.13.1 has refused {installed}"
    others = "2.12.1", "2.13.10", "2.13", "2.13.1a0+git1234567"
    for installed in others:
        message = said("2.13.1", installed)
        assert message, f"a build for 2.13.1 has accepted {installed}"
    for version in "2.13.1", "2.12.1":
        message = said("2.13.1", "2.12.1")
        assert version in message, f"the message does not name {version}"


def file_of(name: str, folder: Path = FOLDER) -> Path:
    """The answer to an exercise, in Python or in C++."""
    (file,) = folder.glob(f"{name}.*")
    return file


@pytest.mark.parametrize("name", JUDGES)
def test_answer(name: str) -> None:
    JUDGES[name](file_of(name))
