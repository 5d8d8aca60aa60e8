"""Threads of PyTorch, lent to the device's copies."""

import torch

from torch_openreg import openreg


def test_what_several_threads_copy_and_clear_is_whole() -> None:
    host = torch.arange(100_003)
    x, side = host.to("openreg"), openreg.Stream()
    side.wait_stream(openreg.current_stream())
    with openreg.stream(side):
        copy, there, zeros = x.clone(), x.to("openreg:1"), x.clone().zero_()
        assert copy.cpu().equal(host)
        assert there.cpu().equal(host)
        assert zeros.cpu().eq(0).all()
