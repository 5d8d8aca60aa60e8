"""A block as descriptor, offset and size: two mappings of the same pages."""

import contextlib
import os
from ctypes import byref, c_int, c_void_p

import pytest

import _device as d
from _device import refused

pytestmark = pytest.mark.one_mode

MIB = 1 << 20


@pytest.fixture(autouse=True)
def first_device():
    d.set_device(0)


@pytest.fixture
def block():
    pointer = d.malloc(3 * d.PAGE + 5)
    yield pointer
    d.free(pointer)


@contextlib.contextmanager
def opened(handle):
    pointer = d.ipc_open(handle)
    try:
        yield pointer
    finally:
        d.ipc_close(pointer)


def test_opened_block_is_the_same_memory(block):
    handle = d.ipc_get(block)
    assert (handle.size, handle.offset % d.PAGE) == (3 * d.PAGE + 5, 0)
    with opened(handle) as other:
        assert other != block
        d.write(block + d.PAGE, b"one")
        assert d.read(other + d.PAGE, 3) == b"one"
        d.write(other, b"two")
        assert d.read(block, 3) == b"two"


def test_kernels_find_an_opened_block_at_the_constant_distance(block):
    with opened(d.ipc_get(block)) as other:

        def fill(address):
            c_int.from_address(
                address + d.address_space().kernel_offset
            ).value = 9
            return 0

        d.launch(d.Kernel(fill), args=other)
        assert d.read(block, 4) == (9).to_bytes(4, "little")


def test_opened_block_is_a_block_of_the_current_device(block):
    d.set_device(1)
    with opened(d.ipc_get(block)) as other:
        size = 3 * d.PAGE + 5
        assert d.attributes(other + 7) == (d.DEVICE, 1, other, size)
        assert f"block of {size} bytes" in d.explain_fault(other + 7)
        with refused("orErrorInvalidValue", "pass the end of its block"):
            d.read(other, size + 1)
    with refused("orErrorInvalidDevicePointer"):
        d.attributes(other)


@pytest.mark.proves("storage.sharing.capacity")
def test_opened_block_takes_addresses_until_it_is_closed(block):
    before, _ = d.memory_info()
    with opened(d.ipc_get(block)):
        assert before - d.memory_info()[0] == 4 * d.PAGE
    assert d.memory_info()[0] == before


@pytest.mark.proves(
    "emulator.orIpcOpenMemHandle",
    "emulator.orIpcCloseMemHandle",
    "messages.or-closed",
)
def test_opening_again_gives_the_same_addresses_until_the_last_close(block):
    first = d.ipc_open(d.ipc_get(block))
    assert d.ipc_open(d.ipc_get(block)) == first
    d.ipc_close(first)
    d.write(block, b"still")
    assert d.read(first, 5) == b"still"
    d.ipc_close(first)
    with refused("orErrorInvalidDevicePointer", "or closed"):
        d.ipc_close(first)


def test_closed_addresses_have_the_devices_own_pages_again(block):
    d.write(block, b"\1" * d.PAGE)
    with opened(d.ipc_get(block)) as other:
        pass
    again = d.malloc(3 * d.PAGE + 5)
    assert again == other
    assert d.read(again, d.PAGE) == bytes(d.PAGE)
    d.write(again, b"\2" * d.PAGE)
    assert d.read(block, d.PAGE) == b"\1" * d.PAGE
    d.free(again)


def test_opened_block_outlives_the_descriptor(block):
    pointer = d.malloc(d.PAGE)
    d.write(pointer, b"kept")
    handle = d.ipc_get(pointer)
    copy = d.MemHandle(os.dup(handle.fd), handle.offset, handle.size)
    other = d.ipc_open(copy)
    os.close(copy.fd)
    d.write(pointer, b"more")
    assert d.read(other, 4) == b"more"
    d.ipc_close(other)
    d.free(pointer)


def test_opened_block_is_not_freed(block):
    with opened(d.ipc_get(block)) as other:
        with refused("orErrorInvalidDevicePointer", "use orIpcCloseMemHandle"):
            d.free(other)
        d.write(other, b"here")
        assert d.read(block, 4) == b"here"


@pytest.mark.proves("messages.came-from-another-process")
def test_opened_block_is_not_passed_on(block):
    with (
        opened(d.ipc_get(block)) as other,
        refused("orErrorInvalidValue", "came from another process"),
    ):
        d.ipc_get(other)


@pytest.mark.proves(
    "emulator.orIpcGetMemHandle", "messages.not-the-start-of-a-live"
)
@pytest.mark.parametrize("place", [None, 8, "interior", "host"])
def test_only_the_start_of_a_live_block_has_a_handle(block, place):
    pointer = {
        "interior": block + d.PAGE,
        "host": d.malloc_host(8) if place == "host" else None,
    }.get(place, place)
    with refused(
        "orErrorInvalidDevicePointer", "not the start of a live block"
    ):
        d.ipc_get(pointer)
    if place == "host":
        d.free_host(pointer)


@pytest.mark.proves("messages.descriptor")
def test_descriptor_must_be_a_devices_memory(block):
    reading, writing = os.pipe()
    for descriptor in (-1, reading):
        with refused(
            "orErrorInvalidResourceHandle", f"descriptor {descriptor}"
        ):
            d.ipc_open(d.MemHandle(descriptor, 0, 8))
    os.close(reading)
    os.close(writing)


def test_memory_that_may_only_be_read_is_not_mapped(block):
    handle, free = d.ipc_get(block), d.memory_info()
    reading = os.open(f"/proc/self/fd/{handle.fd}", os.O_RDONLY)
    with refused(
        "orErrorMemoryAllocation",
        f"cannot map {handle.size} bytes of another process's device: Perm",
    ):
        d.ipc_open(d.MemHandle(reading, handle.offset, handle.size))
    os.close(reading)
    assert d.memory_info() == free
    with opened(handle):
        pass


@pytest.mark.proves("messages.are-no-block-of-a-memory")
@pytest.mark.parametrize(
    ("offset", "size"),
    [(1, 8), (0, 0), (1 << 62, 8), (0, 1 << 62), (2**64 - 4096, 8192)],
)
def test_range_must_be_in_the_memory(block, offset, size):
    free = d.memory_info()
    with refused("orErrorInvalidValue", "are no block of a memory of"):
        d.ipc_open(d.MemHandle(d.ipc_get(block).fd, offset, size))
    assert d.memory_info() == free


def test_null_is_refused(block):
    handle = d.ipc_get(block)
    for name, arguments in (
        ("orIpcGetMemHandle", (None, block)),
        ("orIpcOpenMemHandle", (None, byref(handle))),
        ("orIpcOpenMemHandle", (byref(c_void_p()), None)),
    ):
        with refused("orErrorInvalidValue", "is NULL"):
            d.call(name, *arguments)
    with refused("orErrorInvalidDevicePointer"):
        d.ipc_close(None)


def test_full_device_has_no_addresses_for_another_block():
    out = d.check_run(
        """
        from test_sharing_device import *
        pointer = d.malloc(5 * MIB)
        with refused("orErrorMemoryAllocation", "has no gap of"):
            d.ipc_open(d.ipc_get(pointer))
        d.free(pointer)
        pointer = d.malloc(4 * MIB)
        with opened(d.ipc_get(pointer)):
            assert d.memory_info() == (0, 8 * MIB)
        print(d.memory_info())
        """,
        OPENREG_DEVICE_MEMORY="8M",
    )
    assert out == f"({4 * MIB}, {8 * MIB})\n"


def test_two_processes_write_and_the_memory_outlives_its_owner():
    out = d.check_run("""
        import socket
        from test_sharing_device import *
        ours, theirs = socket.socketpair()
        if os.fork() == 0:  # before the first use, so a device of its own
            pointer = d.malloc(2 * d.PAGE)
            d.write(pointer + 10, b"from the owner")
            handle = d.ipc_get(pointer)
            place = f"{handle.offset} {handle.size}".encode()
            socket.send_fds(theirs, [place], [handle.fd])
            assert theirs.recv(8) == b"written"
            print(d.read(pointer + 100, 5), flush=True)
            os._exit(0)
        place, (fd,), _, _ = socket.recv_fds(ours, 64, 1)
        with opened(d.MemHandle(fd, *map(int, place.split()))) as other:
            os.close(fd)
            d.write(other + 100, b"reply")
            ours.send(b"written")
            os.wait()
            print(d.read(other + 10, 14))
    """)
    assert out == "b'reply'\nb'from the owner'\n"


def test_forked_child_has_no_opened_blocks(block):
    out = d.check_run("""
        from test_sharing_device import *
        pointer = d.malloc(d.PAGE)
        other = d.ipc_open(d.ipc_get(pointer))
        kernel = other + d.address_space().kernel_offset
        pid = os.fork()
        if pid == 0:
            d.ipc_close(other)  # does nothing
            maps = open("/proc/self/maps").read()
            inside = any(
                int(line.split("-")[0], 16) <= kernel
                < int(line.split()[0].split("-")[1], 16)
                for line in maps.splitlines()
            )
            print(inside, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        d.write(other, b"here")
        print(d.read(pointer, 4))
    """)
    assert out == "False\nb'here'\n"
