"""`python` as tests and pages start it: a fork of one that has PyTorch.

The fork server, _fork_server.py, is asked on its socket; where it does not
serve, a new interpreter runs. Only what is quick to import is used here.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
# Lets a process count the lines that it runs.
COUNTING = "COVERAGE_PROCESS_CONFIG"
SERVER = "FORK_SERVER"  # names the socket
NEW = "new"  # the answer where a new interpreter must run
LONGEST = 1 << 17  # bytes of what is asked
STANDARD = 0, 1, 2  # files: input, output and errors
# The variables with which each test and page begins, once a session has begun.
SETTINGS: dict[str, str] = {}


def ask(
    server: str,
    arguments: Sequence[str],
    environment: dict[str, str],
    files: Sequence[int] = STANDARD,
    seconds: float | None = None,
) -> int | None:
    """The exit status of Python with these arguments, or None if it must be a
    new interpreter. Less than 0 is a signal. After the time it is killed.
    """
    asked = json.dumps([arguments, environment, os.getcwd()]).encode()
    if len(asked) > LONGEST:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as told:
        told.settimeout(seconds)
        told.connect(server)
        socket.send_fds(told, [asked], files)
        answer = told.recv(LONGEST).decode()
    if not answer:
        raise ConnectionError("the fork server has ended")
    return None if answer == NEW else int(answer)


def main() -> None:
    environment = dict(os.environ)
    server = environment.pop(SERVER)
    status = None
    # A limit of this shell's is not the server's.
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        status = ask(server, sys.argv[1:], environment)
    if status is None:
        command = [sys.executable, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
