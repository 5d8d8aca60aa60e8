"""Threads of their own, for what each thread has for itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    """What `work()` returns or raises on a new thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
