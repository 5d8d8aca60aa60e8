"""Threads of PyTorch, lent to the device's copies."""

import torch

from torch_openreg import openreg


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
