# A conftest.py whose workers leave later than pytest-xdist waits for.
import atexit
import os
import pathlib
import time

from xdist.workermanage import NodeManager

from _session import await_exit as pytest_configure_node  # noqa: F401

NodeManager.EXIT_TIMEOUT = 0.01


def leave() -> None:
    time.sleep(0.5)
    pathlib.Path("left").touch()


if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(leave)
