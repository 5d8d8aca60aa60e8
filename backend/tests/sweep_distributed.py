"""PyTorch's own tests of torch.distributed, run by four ranks on the device.

    python backend/tests/sweep_distributed.py --record

The wheel has them in torch.testing._internal. They are read as they are, with
this device's names in the place of CUDA's, and what they would ask of Gloo on
the CPU is asked of the device, which is the default. A rank is a process that
lives for all of them, and each has a group of its own. `--record` keeps the
counts for the book.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import io
import json
import os
import re
import sys
import tempfile
import types
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torch_openreg import openreg

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "book" / "rows" / "sweep_distributed.toml"
# What stands before this line is written by hand.
COUNTS_BEGIN = "\n# What the last run has counted.\n"
BACKEND = "gloo"  # whose tests they are
BOTH = "cpu:gloo,openreg:orccl"
SOURCE = "testing/_internal/distributed/distributed_test.py"
NAMES = {
    r"from torch\.cuda\.amp ": "from torch.amp ",
    r"\b(autocast|GradScaler)\(\)": r"\1('openreg')",
    r"\btorch\.cuda\b": "torch.openreg",
    r"\.cuda\(": ".openreg(",
    r"([\"'])cuda(?=[:\"'])": r"\1openreg",
    r"\bbackend=(\"nccl\"|dist\.Backend\.NCCL)": 'backend="orccl"',
    # Images of this size take minutes.
    r"\bdim = 1000\b": "dim = 100",
    # One that leaves may do so before another has connected to it.
    r"( +)# Clean up by destroying all": r"\1self._barrier()\n\g<0>",
    # After wait() a stream has it, and the host may still be early.
    r"self\.assertTrue\((request.*\.is_completed\(\))\)": (
        r"torch.accelerator.synchronize(); self.assertTrue(\1)"
    ),
    # An object comes back on the device that it was sent from.
    r"Foo\(torch\.randn\(3, 3\)\)": "Foo(torch.randn(3, 3, device='cpu'))",
}
# What others lack is no reason to skip a test.
NO_REASON = re.compile("nccl|gloo|mpi|cuda|backend", re.I)
SIZE = 4
SECONDS = 60
# What the others say when one has failed, and does not come or has left.
LEFT_ALONE = re.compile("Timeout waiting for key|Connection closed by peer")
# One process for each rank runs all of a part.
PARTS = (
    "test_[A-Z0-9].*",
    "test_a.*",
    "test_[b-c].*",
    "test_d(?!dp).*",
    "test_ddp(?!_[n-z]).*",
    "test_ddp_[n-z].*",
    "test_[e-r].*",
    "test_[s-z].*",
)


def load() -> None:
    """Makes their module, as if this device were the one that they know."""
    from torch.testing._internal import common_distributed as common

    os.environ |= {"BACKEND": BACKEND, "WORLD_SIZE": str(SIZE)}
    os.environ["INIT_METHOD"] = "file://"
    made: Any = common
    made.skip_if_no_gpu = lambda test: test
    made.skip_if_lt_x_gpu = lambda count: lambda test: test
    made.init_multigpu_helper = lambda size, _: {n: [n] for n in range(size)}
    made.DistTestCases.backend_feature["openreg"] = {BACKEND}
    path = Path(torch.__file__).parent / SOURCE
    text = path.read_text("utf-8")
    for cuda, ours in NAMES.items():
        text = re.sub(cuda, ours, text)
    module = types.ModuleType("distributed_test")
    sys.modules[module.__name__] = module
    code = compile(text, path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


class Ranks:
    """What the ranks tell each other beside the groups under test."""

    def __init__(self, rank: int, folder: str) -> None:
        self.rank, self.folder = rank, folder
        self.store = dist.FileStore(f"{folder}/control", SIZE)
        self.turns: Counter[str] = Counter()

    def tell(
        self, text: str = "", about: str = "", seconds: int = 20 * SECONDS
    ) -> list[str]:
        """What each says here, in order of the ranks."""
        self.store.set_timeout(datetime.timedelta(seconds=seconds))
        self.turns[about] += 1
        keys = [f"{about}/{self.turns[about]}/{rank}" for rank in range(SIZE)]
        self.store.set(keys[self.rank], text)
        return [self.store.get(key).decode() for key in keys]


def make(ranks: Ranks) -> type:
    """Their class, whose tests run in this process."""
    module: Any = sys.modules["distributed_test"]
    bases = module.TestDistBackend, module.DistributedTest._DistTestBase

    class Tests(*bases):  # type: ignore[misc]
        def _barrier(self, *args: object, **settings: object) -> None:
            # One that has failed does not come to it.
            ranks.tell(about=self._testMethodName, seconds=SECONDS)

        @property
        def world_size(self) -> int:
            return SIZE

    return Tests


def leave() -> None:
    with contextlib.suppress(Exception):
        dist.destroy_process_group()


@contextlib.contextmanager
def group(ranks: Ranks, name: str) -> Iterator[None]:
    """A group for one test, and the folder in which it may write."""
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)  # some tests leave it
    dist.set_debug_level_from_env()
    with tempfile.TemporaryDirectory() as temporary:
        folder = ranks.tell(temporary)[0]
        for each in ("barrier", "test_dir", "init_dir"):
            os.makedirs(f"{folder}/{each}", exist_ok=True)
        os.environ["TEMP_DIR"] = folder
        method = f"file://{folder}/init_dir/shared"
        vars(sys.modules["distributed_test"])["INIT_METHOD"] = method
        dist.init_process_group(
            # Objects would go by the host where there is a way.
            "openreg:orccl" if "_object" in name else BOTH,
            store=dist.FileStore(f"{folder}/group", SIZE),
            rank=ranks.rank,
            world_size=SIZE,
            timeout=datetime.timedelta(seconds=SECONDS),
        )
        ranks.tell()  # one that skips its test leaves at once
        try:
            yield
        finally:
            leave()
            openreg.reset_device(ranks.rank)
            gc.collect()
            ranks.tell()


def ask(tests: Any, name: str, ranks: Ranks) -> str:
    """How one test ends on this rank: passed, or skipped or failed and why."""
    from torch.testing._internal import common_distributed as common
    from torch.testing._internal import common_utils

    torch.set_default_device(f"openreg:{ranks.rank}")
    try:
        case = tests(name)
        case.rank, case.file_name = ranks.rank, f"{ranks.folder}/{name}"
        common_utils.set_rng_seed()
        test = getattr(case, name)
        why = getattr(test, "__unittest_skip_why__", None)
        if why and not NO_REASON.search(why):
            raise unittest.SkipTest(why)
        test()
        torch.accelerator.synchronize()
    except unittest.SkipTest as skipped:
        return f"skipped: {skipped}"
    except SystemExit as left:
        known = {skip.exit_code: skip for skip in common.TEST_SKIPS.values()}
        return f"skipped: {known[int(str(left.code))].message}"
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip().splitlines()
        return f"failed: {' '.join(text[:3])[:300]}"
    finally:
        torch.set_default_device(None)
    return "passed"


def worst(ends: list[str]) -> str:
    failed = [end for end in ends if end.startswith("failed")]
    first = [end for end in failed if not LEFT_ALONE.search(end)]
    return min(first or failed or ends)


def run_rank(rank: int, folder: str, chosen: str) -> None:
    """Prints each test whose name is matched, and the worst of its ends."""
    ranks = Ranks(rank, folder)
    tests = make(ranks)
    for name in unittest.defaultTestLoader.getTestCaseNames(tests):
        if not re.fullmatch(chosen, name):
            continue
        quiet = io.StringIO()
        with group(ranks, name), contextlib.redirect_stdout(quiet):
            end = ask(tests, name, ranks)
            if end.startswith("failed"):
                leave()  # so that nobody waits for this one
            end = worst(ranks.tell(end))
        if rank == 0:
            print(f"\n{name}: {end}", flush=True)


def outcomes(chosen: str) -> dict[str, str]:
    """Each test whose name is matched -> how it ended."""
    import _ranks

    # Their module is long, so it is compiled before there are ranks.
    first = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import sweep_distributed
sweep_distributed.load()
"""
    printed = _ranks.run(
        f"sweep_distributed.run_rank(rank, folder, {chosen!r})",
        size=SIZE,
        first=first,
        OPENREG_DEVICE_COUNT=str(SIZE),
    )
    return dict(re.findall(r"^(test_\w+): (.*)", printed, re.MULTILINE))


def kind(end: str) -> tuple[str, str]:
    """Passed, skipped or failed, and why it was skipped."""
    how, _, why = end.partition(": ")
    why = "an issue of PyTorch's" if "github.com" in why else why
    return how, why if how == "skipped" else ""


def count(found: dict[str, str]) -> str:
    """The rows of the record: each end, the reason if skipped, how many."""
    day = datetime.date.today().isoformat()
    version = torch.__version__.partition("+")[0]
    rows = [f'\n[[run]]\nday = "{day}"\ntorch = "{version}"\n']
    for (how, why), tests in sorted(Counter(map(kind, found.values())).items()):
        reason = json.dumps(why, ensure_ascii=False)
        rows.append(
            f'\n[[counts]]\nend = "{how}"\nwhy = {reason}\ntests = {tests}\n'
        )
    return "".join(rows)


def main() -> None:
    sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / ".ci")]
    found: dict[str, str] = {}
    for part in PARTS:
        found |= (ended := outcomes(part))
        for name, end in ended.items():
            print(f"{name}: {end}", flush=True)
    print(count(found))
    if "--record" in sys.argv:
        head = RECORD.read_text("utf-8").partition(COUNTS_BEGIN)[0]
        RECORD.write_text(head + COUNTS_BEGIN + count(found), "utf-8")


if __name__ == "__main__":
    main()
