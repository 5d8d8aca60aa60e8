"""The caching allocator: what it hands out again, counts and gives back."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import accelerator

CAPACITY = accelerator.get_memory_info()[1]


def empty(size: int, device: str = "openreg") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def counted(name: str) -> int:
    return accelerator.memory_stats()[name]


@pytest.fixture(autouse=True)
def nothing_is_kept() -> None:
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()


def test_a_freed_block_serves_the_next_of_its_rounded_size() -> None:
    x = empty(400)
    address = x.data_ptr()
    del x
    x = empty(512)
    assert x.data_ptr() == address
    assert empty(512).data_ptr() != address


def test_neighbours_are_joined_for_a_larger_tensor() -> None:
    x, y, _z = (empty(6 << 20) for _ in range(3))
    address, reserved = x.data_ptr(), accelerator.memory_reserved()
    del x, y
    assert empty(12 << 20).data_ptr() == address
    assert accelerator.memory_reserved() == reserved


def test_bytes_are_counted_as_asked_rounded_and_reserved() -> None:
    before = accelerator.memory_allocated()
    asked = counted("requested_bytes.all.current")
    x = empty(1000)
    assert accelerator.memory_allocated() == before + 1024
    assert counted("requested_bytes.all.current") == asked + 1000
    assert accelerator.memory_reserved() >= 2**21
    del x
    assert accelerator.memory_allocated() == before
    assert accelerator.max_memory_allocated() == before + 1024
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == before


def test_each_device_counts_its_own() -> None:
    last = accelerator.device_count() - 1
    before = accelerator.memory_allocated(last)
    x = empty(1 << 22, f"openreg:{last}")
    assert accelerator.memory_allocated(last) == before + (1 << 22)
    del x
    assert accelerator.memory_allocated(last) == before


def test_what_is_unused_goes_back_to_the_device() -> None:
    free = accelerator.get_memory_info()[0]
    x = empty(1 << 25)
    assert accelerator.get_memory_info()[0] == free - (1 << 25)
    del x
    assert accelerator.get_memory_info()[0] == free - (1 << 25)
    accelerator.empty_cache()
    assert accelerator.get_memory_info()[0] == free


def test_a_full_device_gives_up_its_cache_before_it_refuses() -> None:
    x = empty(CAPACITY // 10 * 6)
    del x  # and is kept
    retries, refused = counted("num_alloc_retries"), counted("num_ooms")
    x = empty(CAPACITY // 10 * 7)
    assert counted("num_alloc_retries") == retries + 1
    assert counted("num_ooms") == refused
    held = accelerator.memory_allocated()
    says = f"openreg out of memory. Tried to .* has allocated {held} and"
    with pytest.raises(torch.OutOfMemoryError, match=says):
        empty(CAPACITY // 10 * 6)
    assert counted("num_ooms") == refused + 1
    del x
    assert empty(CAPACITY // 10 * 6).numel() > 0


def test_threads_never_share_a_block() -> None:
    wrong = []

    def work(number: int) -> None:
        for size in range(200, 3000, 70):
            x = torch.full((size,), number, device="openreg")
            y = torch.full((size,), -number, device="openreg")
            if not ((x.cpu() == number).all() and (y.cpu() == -number).all()):
                wrong.append((number, size))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_settings_of_the_environment_are_obeyed() -> None:
    code = "import torch, torch_openreg\n"
    code += "x = torch.empty(5 << 20, dtype=torch.uint8, device='openreg')\n"
    code += "print(torch.accelerator.memory_allocated() >> 20)"
    setting = "roundup_power2_divisions:"
    for steps, mebibytes in {"1": "5", "2": "6"}.items():
        ran = subprocess.run(
            [sys.executable, "-P", "-c", code],
            env={**os.environ, "PYTORCH_ALLOC_CONF": setting + steps},
            capture_output=True,
            text=True,
        )
        assert ran.stdout.split() == [mebibytes], ran.stderr
