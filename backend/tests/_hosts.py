"""Hosts in one machine, for tests of what runs on several.

A host is a network and a name of its own, and its own names of all: what Linux
calls namespaces. Between two hosts is a wire, which is a thread here: it
carries packets from one to the other, as late as it likes, or not at all. So
no link of the kernel's is needed that could be slow or lose packets.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import heapq
import itertools
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

ADDRESSES = {"alpha": "10.77.0.1", "beta": "10.77.0.2"}

# What a host does first: the names of all, its own, and an end of the wire,
# which it hands over. It lives until its input ends.
BEGIN = """
import array, fcntl, os, socket, struct, subprocess, sys
name, address, names, there = sys.argv[1:]
socket.sethostname(name)
subprocess.run(["mount", "--bind", names, "/etc/hosts"], check=True)
end = os.open("/dev/net/tun", os.O_RDWR)
IFF_TUN, IFF_NO_PI, TUNSETIFF = 1, 0x1000, 0x400454CA
flags = IFF_TUN | IFF_NO_PI
fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"wire", flags))
SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFFLAGS, UP = 0x8916, 0x891C, 0x8914, 1
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
    for call, text in (SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0"):
        packed = socket.inet_aton(text)
        fcntl.ioctl(asked, call, struct.pack(
            "16sHH4s16x", b"wire", socket.AF_INET, 0, packed))
    for each in b"wire", b"lo":
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("16sH22x", each, UP))
with socket.socket(fileno=int(there)) as told:
    told.sendmsg([b"up"], [(
        socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [end]))])
sys.stdin.read()
"""


class Unable(Exception):
    """No host can be made here, and why."""


class Host:
    """One of them; its programs see no other network."""

    def __init__(self, name: str, names: Path) -> None:
        ours, theirs = socket.socketpair()
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        with theirs:
            self.process = subprocess.Popen(
                [
                    *("unshare", *own, "--net", "--uts", "--mount"),
                    *(sys.executable, "-S", "-c", BEGIN, name),
                    *(ADDRESSES[name], str(names), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        with ours:
            _, given, *_ = ours.recvmsg(2, socket.CMSG_SPACE(4))
        if not given:
            raise Unable(self.process.communicate()[1].strip()[-200:])
        self.end = array.array("i", given[0][2])[0]
        self.names = ["user"] * bool(own) + ["net", "uts", "mnt"]
        self.network = os.readlink(f"/proc/{self.process.pid}/ns/net")

    def enter(self) -> None:
        """Moves this process to the host; it may have no other thread."""
        for name in self.names:
            with open(f"/proc/{self.process.pid}/ns/{name}") as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0):
                    raise OSError(ctypes.get_errno(), f"setns: {name}")

    def kill(self) -> None:
        """Ends all that runs on it at once, as a power cut does."""
        while victims := [*self.running()]:
            for number in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.01)

    def running(self) -> Iterator[int]:
        for path in Path("/proc").glob("[0-9]*"):
            number = int(path.name)
            with contextlib.suppress(OSError):
                network = os.readlink(path / "ns" / "net")
                state = (path / "stat").read_text().rpartition(") ")[2][0]
                others = number != self.process.pid and state != "Z"
                if others and network == self.network:
                    yield number

    def close(self) -> None:
        self.kill()
        self.process.communicate()
        os.close(self.end)


class Program:
    """A copy of this process on a host, and what it has printed so far.

    It is made while this process has one thread, and begins when it is told
    to. What takes long is imported before, once for all.
    """

    def __init__(self, host: Host, step: Callable[[], object]) -> None:
        self.host, self.step = host, step
        self.said = ""
        self.more = threading.Condition()
        theirs, ours = os.pipe()
        end, output = os.pipe()
        self.number = os.fork()
        if self.number == 0:
            os._exit(self._become(theirs, output))
        os.close(theirs)
        os.close(output)
        self.input, self.output = os.fdopen(ours, "w"), os.fdopen(end)
        self.reader = threading.Thread(target=self._read, daemon=True)

    def _become(self, theirs: int, output: int) -> int:
        for number, end in enumerate((theirs, output, output)):
            os.dup2(end, number)
        os.closerange(3, 1 << 10)  # other programs', which would not end
        try:
            input()
            self.host.enter()
            self.step()
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
        return 0

    def begin(self) -> None:
        self.reader.start()
        self.go_on()

    def _read(self) -> None:
        for line in self.output:
            with self.more:
                self.said += line
                self.more.notify_all()
        with self.more:
            self.more.notify_all()

    def wait_for(self, text: str, seconds: float = 120) -> str:
        """Waits until it has printed this; returns all that it has."""
        with self.more:
            self.more.wait_for(
                lambda: text in self.said or not self.reader.is_alive(), seconds
            )
            assert text in self.said, f"no {text!r} in:\n{self.said}"
            return self.said

    def go_on(self) -> None:
        """Gives it a line of input."""
        print(file=self.input, flush=True)

    def end(self) -> str:
        """What it has printed; it must end well."""
        assert self.close() == 0, self.said
        return self.said

    def close(self, seconds: float = 120) -> int:
        """How it has ended."""
        self.reader.join(seconds)
        assert not self.reader.is_alive(), f"does not end:\n{self.said}"
        self.output.close()
        with contextlib.suppress(BrokenPipeError):
            self.input.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])


class Wire(threading.Thread):
    """Carries what either end sends to the other."""

    def __init__(self, ends: tuple[int, int]) -> None:
        super().__init__(daemon=True)
        self.ends = ends
        self.delay = 0.0  # seconds, of each packet
        self.loses = 0.0  # the share of packets that are lost
        self.cut = False
        self.lost = 0
        self.over = False
        self.random = random.Random(0)

    def close(self) -> None:
        self.over = True
        if self.is_alive():
            self.join()

    def run(self) -> None:
        late: list[tuple[float, int, int, bytes]] = []
        number = itertools.count()
        while not self.over:
            wait = late[0][0] - time.monotonic() if late else 0.1
            for end in select.select(self.ends, (), (), max(0, wait))[0]:
                packet = os.read(end, 1 << 16)
                if self.cut or self.random.random() < self.loses:
                    self.lost += 1
                    continue
                other = self.ends[end == self.ends[0]]
                due = time.monotonic() + self.delay
                heapq.heappush(late, (due, next(number), other, packet))
            while late and late[0][0] <= time.monotonic():
                *_, other, packet = heapq.heappop(late)
                with contextlib.suppress(OSError):
                    os.write(other, packet)


@contextlib.contextmanager
def two() -> Iterator[tuple[Host, Host, Wire]]:
    """Two hosts, and the wire between them, which is to be started."""
    with contextlib.ExitStack() as done, tempfile.TemporaryDirectory() as place:
        names = Path(place) / "hosts"
        lines = [f"{address} {name}" for name, address in ADDRESSES.items()]
        names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        hosts = []
        for name in ADDRESSES:
            hosts.append(Host(name, names))
            done.callback(hosts[-1].close)
        wire = Wire((hosts[0].end, hosts[1].end))
        done.callback(wire.close)
        yield hosts[0], hosts[1], wire
