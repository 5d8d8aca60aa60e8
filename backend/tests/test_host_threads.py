"""Threads of PyTorch, lent to the device's copies."""

import pytest
import torch

from torch_openreg import openreg


@pytest.mark.parametrize("threads", [2, 3])
def test_what_several_threads_copy_and_clear_is_whole(threads: int) -> None:
    host, before = torch.arange(100_003), torch.get_num_threads()
    x, side = host.to("openreg"), openreg.Stream()
    side.wait_stream(openreg.current_stream())
    torch.set_num_threads(threads)
    try:
        with openreg.stream(side):
            copy, there, zeros = x.clone(), x.to("openreg:1"), x.clone().zero_()
            assert copy.cpu().equal(host)
            assert there.cpu().equal(host)
            assert zeros.cpu().eq(0).all()
    finally:
        torch.set_num_threads(before)
