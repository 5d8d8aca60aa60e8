"""A program that has imported PyTorch and no backend, and forks processes.

_python.py asks for each: it takes the arguments of a Python, an environment, a
folder and three files, and leaves through Python's and C's exit, as every
process does. Its status is the answer. So a process begins without the seconds
that PyTorch takes. Where a fork would not be what a new interpreter is, the
answer says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import runpy
import selectors
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple

import torch

from _python import AUTOLOAD, COUNTING, LONGEST, NEW, STANDARD

# What Python and PyTorch have not read by now, and what is the shell's.
LATE = re.compile(
    f"{AUTOLOAD}|{COUNTING}|LD_PRELOAD|OMIT|FAULT|OPENREG_.*|PYTORCH_ALLOC_CONF"
    "|PYTEST_.*|CI|PATH|PYTHONPATH|REPO|FOLDER|PWD|OLDPWD|SHLVL|_"
)
READ = selectors.EVENT_READ


class Asked(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    folder: str

    def fits(self) -> bool:
        """Whether a new interpreter would import what is imported here."""
        differ = self.environment.items() ^ os.environ.items()
        what, *rest = self.arguments[self.arguments[:1] == ["-P"] :] or ["-V"]
        source = "import torch"  # which standard input surely does
        if what in ("-c", "-m"):
            source = rest[0] if what == "-c" else f"from {rest[0]}"
        elif what != "-":
            file = Path(self.folder, what)
            source = file.read_text() if file.is_file() else ""
        imports = re.search(
            r"\bimport [\w., ]*\btorch|\bfrom (torch|pytest)", source
        )
        return bool(imports) and all(LATE.fullmatch(name) for name, _ in differ)


class Server:
    """A child ends when its asker does; the server, when its input does."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.events = selectors.DefaultSelector()
        self.events.register(sys.stdin, READ, self.leave)
        self.events.register(listener, READ, self.hear)
        self.serves = True
        self.task: tuple[Asked, list[int]] | None = None

    def serve(self) -> tuple[Asked, list[int]] | None:
        """Answers for its children; in each of them, returns its task."""
        while self.serves:
            for key, _ in self.events.select():
                if self.serves and key.fd in self.events.get_map():
                    key.data()
        return self.task

    def leave(self) -> None:
        self.serves = False

    def hear(self) -> None:
        asker, _ = self.listener.accept()
        message, files, *_ = socket.recv_fds(asker, LONGEST, len(STANDARD))
        asked = Asked(*json.loads(message))
        if not asked.fits():
            with asker:
                asker.send(NEW.encode())
        else:
            with warnings.catch_warnings(action="ignore"):
                child = os.fork()  # NumPy has threads, which know of forks
            if child == 0:
                self.let_go(asked, files, asker)
                return
            self.watch(child, asker)
        for file in files:
            os.close(file)

    def let_go(
        self, asked: Asked, files: list[int], asker: socket.socket
    ) -> None:
        """In a child: lets go of all that is the server's."""
        for key in list(self.events.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self.events.close()
        asker.close()
        self.serves, self.task = False, (asked, files)

    def watch(self, child: int, asker: socket.socket) -> None:
        end = os.pidfd_open(child)

        def ended() -> None:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            self.events.unregister(end)
            os.close(end)
            if asker in self.events.get_map():
                self.events.unregister(asker)
            with asker, contextlib.suppress(OSError):
                asker.send(str(status).encode())

        def gone() -> None:
            self.events.unregister(asker)
            signal.pidfd_send_signal(end, signal.SIGKILL)

        self.events.register(end, READ, ended)
        self.events.register(asker, READ, gone)


class Late(MetaPathFinder, Loader):
    """PyTorch as if it were imported only now: backends come in with it."""

    def __init__(self) -> None:
        self.spec = torch.__spec__
        del sys.modules["torch"]
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "torch" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return torch

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        module.__spec__ = self.spec
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()


def places() -> list[str]:
    """Where PYTHONPATH lets modules be found."""
    said = os.environ.get("PYTHONPATH")
    return [*map(os.path.abspath, said.split(os.pathsep))] if said else []


def become(asked: Asked, files: list[int]) -> None:
    """Nothing is left of the server but what it has imported."""
    ours = places()
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.folder)
    others = [place for place in sys.path[1:] if place not in ours]
    sys.path[1:] = places() + others
    for file, number in zip(files, STANDARD, strict=True):
        os.dup2(file, number)
        os.close(file)
    for library in os.environ.get("LD_PRELOAD", "").split():
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    if COUNTING in os.environ:
        import coverage

        coverage.process_startup()
    sys.excepthook = without_server
    Late()


def without_server(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def execute(arguments: list[str]) -> None:
    """What Python does with its command line."""
    path = sys.path
    path.pop(0)  # where the server is
    if arguments[0] == "-P":
        path, arguments = [], arguments[1:]
    what, *rest = arguments
    sys.modules["__main__"] = main = ModuleType("__main__")
    if what == "-m":
        path.insert(0, os.getcwd())
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    file, source, folder = f"<{what}>", "", ""
    sys.argv[:] = what, *rest
    if what == "-c":
        file, source = "<string>", rest.pop(0)
        sys.argv[:] = "-c", *rest
    elif what == "-":
        file, source = "<stdin>", sys.stdin.read()
    else:
        file = main.__file__ = os.path.abspath(what)
        source, folder = Path(file).read_text(), os.path.dirname(file)
    path.insert(0, folder)
    exec(compile(source, file, "exec", dont_inherit=True), vars(main))


gc.freeze()  # what is imported here is not looked through at each exit
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    print("listens", flush=True)
    if task := Server(listening).serve():
        become(*task)
        execute(task[0].arguments)
