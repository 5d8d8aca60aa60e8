"""What runs on several hosts: slow links, lost hosts, and a new beginning."""

from __future__ import annotations

import doctest
import json
import os
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import _fresh
from _examples import EXAMPLES
from _session import counting

PAGE = Path(__file__).parents[2] / "book" / "howto" / "several-machines.md"

# Around what a job does on two hosts.
BEGIN = """
import json, os, sys, time
sys.path[:0] = sys.argv[1:3]
import torch
import torch.distributed as dist
from datetime import timedelta
from torch.distributed import run
import _hosts
"""
END = """
try:
    with _hosts.two() as hosts:
        job(*hosts)
except _hosts.Unable as why:
    print("unable:", why)
"""


def on_hosts(job: str, *arguments: str) -> str:
    """What is printed by `job`, a function of two hosts and their wire."""
    code = BEGIN + textwrap.dedent(job) + END
    places = str(Path(__file__).parent), str(EXAMPLES)
    printed = _fresh.prints(code, *places, *arguments)
    if printed.startswith("unable:"):
        pytest.skip(f"no network of one's own can be made here: {printed[8:]}")
    return printed


@pytest.mark.one_mode
@pytest.mark.proves("distributed-partition")
def test_slow_links_do_not_hang_and_a_cut_one_is_an_error() -> None:
    on_hosts("""
    def add_up(rank):
        torch.set_num_threads(1)
        dist.init_process_group(
            init_method="tcp://alpha:29500", rank=rank, world_size=2,
            timeout=timedelta(seconds=60))
        brief = dist.new_group(timeout=timedelta(seconds=3))
        x = torch.ones(1 << 16, device="openreg")
        for way in "quick", "slow", "lossy":
            for turn in range(5):
                dist.all_reduce(x.fill_(turn + rank))
                assert x.eq(2 * turn + 1).all(), (way, turn)
            print(way, flush=True)
            input()
        try:
            dist.all_reduce(x, group=brief)
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        torch.openreg.reset_device()
        assert x.fill_(3).mul(2).eq(6).all()
        print("goes on")

    def job(alpha, beta, wire):
        ranks = [
            _hosts.Program(host, lambda rank=rank: add_up(rank))
            for rank, host in enumerate((alpha, beta))
        ]
        wire.start()
        for rank in ranks:
            rank.begin()
        for way, delay, loses in (("quick", 0.02, 0), ("slow", 0, 0.05)):
            for rank in ranks:
                rank.wait_for(way)
            wire.delay, wire.loses = delay, loses
            for rank in ranks:
                rank.go_on()
        for rank in ranks:
            rank.wait_for("lossy")
        assert wire.lost > 0
        wire.cut = True
        begun = time.monotonic()
        for rank in ranks:
            rank.go_on()
        for rank in ranks:
            said = rank.end()
            failed = "c10d::allreduce of Float[65536] on openreg:0 failed"
            assert failed in said, said
            assert "goes on" in said, said
        assert time.monotonic() - begun > 2
    """)


def fence(name: str) -> str:
    """What stands in the fence below a comment of the page."""
    below = PAGE.read_text().partition(f"<!-- {name} -->")[2]
    return below.split("```")[1].removeprefix("text\n")


@pytest.mark.one_mode
@pytest.mark.proves("distributed-restart")
def test_a_job_that_loses_a_host_goes_on_where_it_was(tmp_path: Path) -> None:
    setting, _, *options = fence("command").split()
    assert options[-2:] == ["elastic_model.py", "FOLDER"]
    program = str(EXAMPLES / "elastic_model.py")
    torchrun = [*options[:-2], "--monitor-interval=0.1", program, str(tmp_path)]
    name, value = setting.split("=")
    settings = {"SECONDS": "3", "OMP_NUM_THREADS": "1", name: value}
    said = on_hosts(
        """
    def torchrun():
        os.environ |= json.loads(sys.argv[3])
        run.main(json.loads(sys.argv[4]))

    def job(alpha, beta, wire):
        first, second, third = (
            _hosts.Program(host, torchrun) for host in (alpha, beta, beta)
        )
        wire.delay = 0.005
        wire.start()
        first.begin()
        second.begin()
        first.wait_for("step 3 by 2")
        wire.cut = True
        beta.kill()
        second.close()
        first.wait_for("failed (exitcode: 1)")
        wire.cut = False
        third.begin()
        third.end()
        print(first.end())
    """,
        json.dumps(settings),
        json.dumps(torchrun),
    )
    # One more step or two may end before the power does; they are not shown.
    shown = re.sub(r"(?<=step 3 by 2\n)(step \d by 2\n)+", "", said)
    lost = shown.index("step 3 by 2") + 1
    back = lost + shown[lost:].index("failed (exitcode: 1)") + 1
    lines = [(lost, "beta is lost"), (back, "beta is back")]
    told = r"step \d+ by \d|openreg: .+|failed \(exitcode: \d\)"
    for found in re.finditer(told, shown):
        lines.append((found.start(), f"alpha: {found[0]}"))
    run = "".join(f"{line}\n" for _, line in sorted(lines))
    same = doctest.OutputChecker().check_output
    assert same(fence("run"), run, doctest.ELLIPSIS), run
    kept = torch.load(tmp_path / "checkpoint.pt")["losses"]
    torch.testing.assert_close(kept, alone(tmp_path), rtol=1e-6, atol=0)


def alone(folder: Path) -> list[float]:
    """The losses of one process that nothing disturbs, and that goes on."""
    printed = _fresh.prints(
        """
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        import elastic_model
        file = Path(sys.argv[2]) / "alone.pt"
        for again in range(2):
            print(elastic_model.train(elastic_model.make(), file, 0, 1))
        """,
        str(EXAMPLES),
        str(folder),
        **counting(),
    )
    losses, again = map(json.loads, printed.splitlines()[-2:])
    assert losses == again
    return list[float](losses)


RANK = """
import os, runpy, sys
program, folder, rank, port = sys.argv[1:]
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
sys.path.insert(0, os.path.dirname(program))
sys.argv[:] = program, folder
runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.one_mode
def test_its_program_learns_on_two_devices_as_on_one(tmp_path: Path) -> None:
    port = 20000 + os.getpid() % 10000  # the kernel gives others to programs
    given = str(EXAMPLES / "elastic_model.py"), str(tmp_path)

    def run(rank: str) -> str:
        return _fresh.prints(RANK, *given, rank, str(port), **counting())

    with ThreadPoolExecutor() as threads:
        said = "".join(threads.map(run, "01"))
    kept = torch.load(tmp_path / "checkpoint.pt")["losses"]
    assert said.count(" by 2\n") == len(kept)
    torch.testing.assert_close(kept, alone(tmp_path), rtol=1e-6, atol=0)
