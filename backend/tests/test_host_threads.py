"""Threads of PyTorch, lent to the device's copies."""

import torch

import _fresh
from torch_openreg import openreg


def test_a_long_copy_takes_more_than_one_thread() -> None:
    printed = _fresh.prints("""
        import os
        import torch
        def threads():
            return len(os.listdir("/proc/self/task"))
        torch.set_num_threads(3)
        x, few = (torch.empty(n, device="openreg") for n in (1 << 18, 8))
        few.clone().zero_()
        before = threads()
        few.clone()
        print(threads() - before)
        x.clone()
        torch.openreg.synchronize()
        print(threads() - before)
    """)
    assert printed.split() == ["0", "2"]


def test_what_several_threads_copy_and_clear_is_whole() -> None:
    host, before = torch.arange(100_003), torch.get_num_threads()
    x, side = host.to("openreg"), openreg.Stream()
    side.wait_stream(openreg.current_stream())
    try:
        for threads in (2, 3):  # which the stream's worker follows
            torch.set_num_threads(threads)
            with openreg.stream(side):
                copy, there = x.clone(), x.to("openreg:1")
                zeros = x.clone().zero_()
                assert copy.cpu().equal(host)
                assert there.cpu().equal(host)
                assert zeros.cpu().eq(0).all()
    finally:
        torch.set_num_threads(before)
