"""The caching pool and pinned memory, reached through PyTorch."""

import threading

import _fresh
import pytest
import torch

MIB = 1 << 20


def empty(size, device="openreg"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def free_bytes():
    return torch.accelerator.get_memory_info("openreg:0")[0]


@pytest.fixture(autouse=True)
def nothing_cached():
    torch.accelerator.empty_cache()


# The pool


@pytest.mark.parametrize("power", range(9, 28))
def test_a_block_is_at_most_a_quarter_larger_than_asked(power):
    for size in (2**power - 1, 2**power, 2**power + 1, 3 * 2 ** (power - 1)):
        before = torch.accelerator.memory_allocated()
        x = empty(size)
        block = torch.accelerator.memory_allocated() - before
        assert size <= block
        assert block < size + max(512, size / 4 + 1)
        assert block % 512 == 0
        del x


def test_a_freed_block_is_handed_out_again():
    x = empty(5000)
    address = x.data_ptr()
    free = free_bytes()
    del x
    assert empty(5000).data_ptr() == address
    assert free_bytes() == free


def test_live_blocks_do_not_overlap():
    tensors = [empty(size % 7000 + 1) for size in range(0, 300_000, 977)]
    for index, x in enumerate(tensors):
        x.fill_(index % 251)
    for index, x in enumerate(tensors):
        assert (x == index % 251).all()


def test_a_storage_comes_from_the_pool():
    before = torch.accelerator.memory_allocated("openreg:1")
    storage = torch.UntypedStorage(3 * MIB, device="openreg:1")
    assert torch.accelerator.memory_allocated("openreg:1") == before + 3 * MIB
    del storage
    assert torch.accelerator.memory_allocated("openreg:1") == before


def test_no_bytes_need_no_block():
    before = torch.accelerator.memory_stats()["allocation.all.allocated"]
    assert empty(0).data_ptr() == 0
    after = torch.accelerator.memory_stats()["allocation.all.allocated"]
    assert after == before


def test_empty_cache_gives_back_what_no_tensor_uses():
    free = free_bytes()
    small = empty(1000)  # keeps its segment of 2 MiB
    large = empty(64 * MIB)
    del large
    assert free_bytes() <= free - 64 * MIB
    torch.accelerator.empty_cache()
    assert free - 2 * MIB <= free_bytes() <= free
    small.fill_(7)
    assert (small == 7).all()


def test_statistics_follow_the_tensors():
    acc = torch.accelerator
    before = acc.memory_allocated()
    acc.reset_peak_memory_stats()
    x = empty(8 * MIB)
    assert acc.memory_allocated() == before + 8 * MIB
    del x
    assert acc.memory_allocated() == before
    assert acc.max_memory_allocated() == before + 8 * MIB
    assert acc.memory_reserved() >= before + 8 * MIB
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == before
    acc.reset_accumulated_memory_stats()
    stats = acc.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 0
    assert stats["num_device_alloc"] == stats["num_device_free"] == 0


def test_memory_info_is_each_devices_own():
    free, total = torch.accelerator.get_memory_info("openreg:1")
    x = empty(32 * MIB)
    assert torch.accelerator.get_memory_info("openreg:1") == (free, total)
    assert free_bytes() <= total - 32 * MIB
    del x


def test_threads_share_the_pool():
    wrong = []

    def work(number):
        for size in range(1, 40_000, 613):
            x = empty(size)
            x.fill_(number)
            y = x.clone()
            if not (y == number).all():
                wrong.append((number, size))

    before = torch.accelerator.memory_allocated()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.accelerator.memory_allocated() == before


# A device that is full

FULL = """
    import torch
    def empty(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="openreg")
    def count(name):
        return torch.accelerator.memory_stats()[name]
"""


def test_a_full_device_first_gives_back_what_the_pool_keeps():
    code = """
    x = empty(32)
    del x
    y = empty(48)  # only fits when the 32 MiB have gone
    print(count("num_alloc_retries"), count("num_ooms"))
    """
    printed = _fresh.prints(FULL + code, OPENREG_DEVICE_MEMORY="64M")
    assert printed == "1 0\n"


def test_out_of_memory_names_its_numbers_and_is_survived():
    code = """
    x = empty(40)
    x.fill_(3)
    try:
        empty(32)
    except torch.OutOfMemoryError as error:
        print(error)
    print(count("num_ooms"), bool((x[:8] == 3).all()))
    del x
    y = empty(32)
    y.fill_(4)
    print(bool((y[:8] == 4).all()))
    """
    printed = _fresh.prints(FULL + code, OPENREG_DEVICE_MEMORY="64M")
    assert printed == (
        f"openreg out of memory. Tried to allocate {32 * MIB} bytes on device "
        f"0, which has a capacity of {64 * MIB} bytes, of which {24 * MIB} are "
        f"free. This process has allocated {40 * MIB} and reserved {40 * MIB} "
        "bytes. Free tensors, use smaller ones or raise "
        "OPENREG_DEVICE_MEMORY.\n1 True\nTrue\n"
    )


def test_more_than_the_capacity_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        empty(1 << 50)
    assert (empty(8).fill_(1) == 1).all()


# Pinned memory


def test_a_pinned_tensor_is_on_the_host_and_known_to_the_device():
    x = torch.arange(1000.0)
    p = x.pin_memory()
    assert p.device.type == "cpu"
    assert p.is_pinned()
    assert p[17:].is_pinned()
    assert not x.is_pinned()
    assert torch.equal(p, x)
    assert torch.equal(p.to("openreg", non_blocking=True).cpu(), x)


def test_factories_can_pin():
    assert torch.ones(3, pin_memory=True).is_pinned()


def test_a_freed_pinned_block_is_handed_out_again():
    p = torch.empty(5000, pin_memory=True)
    address = p.data_ptr()
    del p
    assert torch.empty(5000, pin_memory=True).data_ptr() == address


def test_empty_host_cache_gives_pinned_memory_back():
    code = """
    import re, torch
    def mapped():
        status = open("/proc/self/status").read()
        return int(re.search(r"VmSize:\\s*(\\d+)", status)[1]) >> 10
    torch.ones(1, device="openreg")  # a device in use has a cache, to PyTorch
    p = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    del p
    kept = mapped()
    torch.accelerator.empty_host_cache()
    print(kept - mapped() >= 250)
    """
    assert _fresh.prints(code) == "True\n"
