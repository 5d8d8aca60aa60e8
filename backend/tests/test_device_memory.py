"""Device memory and pinned memory: blocks, look-ups and copies."""

import ctypes
import os
import random
import re
from pathlib import Path

import pytest

import _device as d
from _device import refused

pytestmark = pytest.mark.one_mode

NOT_DEVICE = "orErrorInvalidDevicePointer"


@pytest.fixture
def block():
    """A block of 1000 bytes on device 0, which hold 0 to 249 four times."""
    d.set_device(0)
    pointer = d.malloc(1000)
    d.write(pointer, bytes(range(250)) * 4)
    yield pointer
    d.free(pointer)


@pytest.fixture
def other():
    """A block of 1000 zeros on device 1."""
    d.set_device(1)
    pointer = d.malloc(1000)
    d.set_device(0)
    yield pointer
    d.free(pointer)


@pytest.fixture
def host():
    """1000 bytes of ordinary host memory."""
    buffer = ctypes.create_string_buffer(b"h" * 1000, 1000)
    yield ctypes.addressof(buffer)
    del buffer


@pytest.fixture
def pinned():
    pointer = d.malloc_host(1000)
    ctypes.memset(pointer, ord("p"), 1000)
    yield pointer
    d.free_host(pointer)


# Blocks


def test_size_0_is_null_and_null_can_be_freed():
    before = d.memory_info()
    assert d.malloc(0) is None
    d.free(None)
    assert d.malloc_host(0) is None
    d.free_host(None)
    assert d.memory_info() == before


@pytest.mark.proves("emulator.orMemGetInfo")
def test_blocks_are_whole_pages_and_start_as_zeros():
    free_before, total = d.memory_info()
    pointer = d.malloc(d.PAGE + 1)
    assert pointer % d.PAGE == 0
    assert d.read(pointer, d.PAGE + 1) == bytes(d.PAGE + 1)
    assert d.memory_info() == (free_before - 2 * d.PAGE, total)
    d.free(pointer)
    assert d.memory_info() == (free_before, total)


@pytest.mark.proves("emulator.orFree", "messages.in-no-live-block")
def test_double_free_is_refused():
    pointer = d.malloc(8)
    d.free(pointer)
    with refused(NOT_DEVICE, "is in no live block .* was it freed"):
        d.free(pointer)


@pytest.mark.proves("messages.not-the-start-of-a-block")
def test_interior_pointer_cannot_be_freed(block):
    with refused(NOT_DEVICE, "not the start of a block"):
        d.free(block + 1)


def test_host_memory_cannot_be_freed(host, pinned):
    for pointer in (host, pinned, 1, 2**64 - 1):
        with refused(NOT_DEVICE):
            d.free(pointer)


def test_device_memory_of_any_device_can_be_freed_from_any():
    d.set_device(1)
    before = d.memory_info()
    pointer = d.malloc(8)
    d.set_device(0)
    d.free(pointer)
    d.set_device(1)
    assert d.memory_info() == before
    d.set_device(0)


def test_freed_memory_reads_as_zeros_again():
    pointer = d.malloc(d.PAGE)
    d.memset(pointer, 0xFF, d.PAGE)
    d.free(pointer)
    again = d.malloc(d.PAGE)
    assert again == pointer  # best fit: the same gap
    assert d.read(again, d.PAGE) == bytes(d.PAGE)
    d.free(again)


def test_freed_pages_go_back_to_the_system():
    code = """
    malloc(8)
    files = [
        f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")
        if name.isdigit() and os.path.islink(f"/proc/self/fd/{name}")
        and "openreg-device-0" in os.readlink(f"/proc/self/fd/{name}")
    ]
    assert len(files) == 1
    held = lambda: os.stat(files[0]).st_blocks * 512 // 2**20
    pointer = malloc(8 << 20)
    print(held())
    memset(pointer, 1, 8 << 20)
    print(held())
    free(pointer)
    print(held())
    """
    assert d.check_run(code) == "0\n8\n0\n"


@pytest.mark.proves("messages.back-to-the-system")
def test_pages_that_cannot_go_back_leave_the_block_alone():
    code = """
    pointer = malloc(8)
    memset(pointer, 1, 8)
    before = memory_info()
    for name in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{name}"
        if os.path.islink(link) and "openreg-device" in os.readlink(link):
            os.close(int(name))
    try:
        free(pointer)
    except DeviceError as error:
        print(error)
    assert memory_info() == before
    print(read(pointer, 8))
    """
    assert d.check_run(code) == (
        f"orErrorMemoryAllocation: cannot give {d.PAGE} bytes of device 0 back "
        "to the system: Bad file descriptor\n" + repr(b"\1" * 8) + "\n"
    )


@pytest.mark.proves(
    "emulator-capacity",
    "emulator.orMalloc",
    "errors.codes.orErrorMemoryAllocation",
    "messages.has-no-gap-of",
)
def test_capacity_is_real_and_comes_back():
    code = """
    pages = [malloc(1) for _ in range(256)]
    print(memory_info())
    for size in (1, 1 << 20, 2**64 - 1):
        try:
            malloc(size)
        except DeviceError as error:
            print(error)
    set_device(1)
    free(malloc(1 << 20))
    set_device(0)
    for page in pages:
        free(page)
    print(memory_info())
    whole = malloc(1 << 20)
    print(memory_info())
    free(whole)
    """
    mega = 1 << 20
    assert d.check_run(code, OPENREG_DEVICE_MEMORY="1M").splitlines() == [
        f"(0, {mega})",
        *(
            f"orErrorMemoryAllocation: device 0 has no gap of {size} bytes; "
            f"0 of its {mega} bytes are free"
            for size in (1, mega, 2**64 - 1)
        ),
        f"({mega}, {mega})",
        f"(0, {mega})",
    ]


def test_failed_malloc_leaves_the_pointer_alone():
    pointer = ctypes.c_void_p(42)
    with refused("orErrorMemoryAllocation"):
        d.call("orMalloc", ctypes.byref(pointer), ctypes.c_size_t(2**63))
    assert pointer.value == 42


def test_best_fit_and_neighbours_that_join():
    code = """
    a, b, c, e, f = (malloc(n * PAGE) for n in (3, 1, 1, 1, 2))
    assert [b - a, c - b, e - c, f - e] == [n * PAGE for n in (3, 1, 1, 1)]
    free(a)
    free(c)
    assert malloc(PAGE) == c  # the gap of one page, not that of three
    free(e)
    free(c)  # joins the gap after it
    assert malloc(2 * PAGE) == c
    free(c)
    free(b)  # joins the gaps on both sides
    assert malloc(6 * PAGE) == a
    """
    d.check_run(code)


def test_random_blocks_never_overlap():
    chance = random.Random(7)
    before = d.memory_info()
    live: dict[d.Pointer, tuple[int, int]] = {}
    for step in range(400):
        if live and chance.random() < 0.45:
            pointer = chance.choice(list(live))
            size, value = live.pop(pointer)
            assert d.read(pointer, size) == bytes([value]) * size
            d.free(pointer)
        else:
            size = chance.randrange(1, 5 * d.PAGE)
            pointer = d.malloc(size)
            d.memset(pointer, step % 256, size)
            live[pointer] = size, step % 256
    for pointer, (size, value) in live.items():
        assert d.read(pointer, size) == bytes([value]) * size
        d.free(pointer)
    assert d.memory_info() == before


# Look-ups


@pytest.mark.proves("emulator.orPointerGetAttributes")
def test_interior_pointers_find_their_block(block, other):
    for offset in (0, 1, 999):
        expected = (d.DEVICE, 0, block, 1000)
        assert d.attributes(block + offset) == expected
    assert d.attributes(other + 5) == (d.DEVICE, 1, other, 1000)


def test_past_the_requested_size_there_is_no_block(block):
    with refused(NOT_DEVICE, "in no live block"):
        d.attributes(block + 1000)


def test_device_range_outside_blocks_is_refused():
    space = d.address_space()
    with refused(NOT_DEVICE):
        d.attributes(space.device_base + space.device_bytes - 1)


def test_pinned_memory_is_found(pinned):
    assert d.attributes(pinned + 999) == (d.HOST, 0, pinned, 1000)
    d.set_device(1)
    on_other = d.malloc_host(8)
    d.set_device(0)
    assert d.attributes(on_other) == (d.HOST, 1, on_other, 8)
    d.free_host(on_other)
    assert d.attributes(on_other)[0] == d.UNREGISTERED


def test_all_else_is_unregistered(host, pinned):
    for pointer in (None, host, pinned + 1000):
        assert d.attributes(pointer) == (d.UNREGISTERED, -1, None, 0)


def test_look_ups_before_the_first_use_find_nothing():
    code = """
    space = address_space()
    print(tuple(attributes(8)))
    for name, arguments in {
        "orPointerGetAttributes": [
            byref(PointerAttributes()), space.device_base],
        "orFree": [space.device_base],
        "orFreeHost": [space.device_base],
        "orMemset": [space.device_base, 0, 1],
    }.items():
        try:
            call(name, *arguments)
        except DeviceError as error:
            print(name, error.name)
    """
    assert d.check_run(code).splitlines() == [
        "(0, -1, None, 0)",
        "orPointerGetAttributes orErrorInvalidDevicePointer",
        "orFree orErrorInvalidDevicePointer",
        "orFreeHost orErrorInvalidValue",
        "orMemset orErrorInvalidDevicePointer",
    ]


# Pinned memory


def test_pinned_memory_is_the_hosts_own(pinned, block):
    assert ctypes.string_at(pinned, 1000) == b"p" * 1000
    d.memcpy(block, pinned, 1000, d.HOST_TO_DEVICE)
    assert d.read(block, 1000) == b"p" * 1000


@pytest.mark.proves(
    "emulator.orMallocHost",
    "emulator.orFreeHost",
    "messages.not-a-pointer-that-ormallochost",
)
def test_only_live_pinned_blocks_can_be_freed(host, pinned, block):
    pointer = d.malloc_host(8)
    d.free_host(pointer)
    for wrong in (pointer, pinned + 1, host, block):
        with refused("orErrorInvalidValue", "not a pointer that orMallocHost"):
            d.free_host(wrong)


@pytest.mark.proves("messages.bytes-of-host-memory")
def test_pinned_memory_runs_out():
    with refused("orErrorMemoryAllocation", "bytes of host memory"):
        d.malloc_host(2**62)


def test_copy_past_the_end_of_a_pinned_block_is_refused(pinned, block):
    with refused("orErrorInvalidValue", "src .* pass the end .* at most 999"):
        d.memcpy(block, pinned + 1, 1000, d.HOST_TO_DEVICE)


# Copies


@pytest.mark.proves("emulator.orMemcpy")
@pytest.mark.parametrize("infer", [False, True])
def test_every_kind_copies(block, other, host, pinned, infer):
    def copy(dst, src, kind):
        d.memcpy(dst, src, 1000, d.DEFAULT if infer else kind)

    data = bytes(range(250)) * 4
    copy(host, block, d.DEVICE_TO_HOST)
    assert ctypes.string_at(host, 1000) == data
    copy(other, block, d.DEVICE_TO_DEVICE)
    assert d.read(other, 1000) == data
    copy(pinned, host, d.HOST_TO_HOST)
    assert ctypes.string_at(pinned, 1000) == data
    d.memset(block, 0, 1000)
    copy(block, pinned, d.HOST_TO_DEVICE)
    assert d.read(block, 1000) == data


@pytest.mark.proves(
    "emulator-copy-checked",
    "errors.codes.orErrorInvalidMemcpyDirection",
    "messages.memory-but-the-kind-expects",
)
@pytest.mark.parametrize("kind", range(4))
def test_wrong_kind_is_refused_and_moves_nothing(block, other, host, kind):
    pairs = {
        d.HOST_TO_HOST: (host, host),
        d.HOST_TO_DEVICE: (block, host),
        d.DEVICE_TO_HOST: (host, block),
        d.DEVICE_TO_DEVICE: (other, block),
    }
    dst, src = pairs[kind]
    d.memcpy(dst, src, 8, kind)
    before = d.read(block, 1000), ctypes.string_at(host, 1000)
    for wrong in range(4):
        if wrong != kind:
            with refused(
                "orErrorInvalidMemcpyDirection",
                "is (host|device) memory, but the kind expects",
            ):
                d.memcpy(dst, src, 1000, wrong)
    assert (d.read(block, 1000), ctypes.string_at(host, 1000)) == before


@pytest.mark.proves("messages.expected-0-to-4")
@pytest.mark.parametrize("kind", [-1, 5, 1 << 31])
@pytest.mark.parametrize("count", [0, 8])
def test_unknown_kind_is_refused(block, host, kind, count):
    with refused("orErrorInvalidMemcpyDirection", "expected 0 to 4"):
        d.memcpy(block, host, count, kind)


@pytest.mark.parametrize("kind", range(5))
def test_count_0_does_nothing(kind):
    d.memcpy(None, None, 0, kind)
    d.memset(None, 1, 0)


@pytest.mark.proves("errors.codes.orErrorInvalidValue", "messages.is-null")
@pytest.mark.parametrize("kind", range(5))
def test_null_is_refused(block, host, kind):
    for dst, src in ((None, host), (block, None)):
        with refused("orErrorInvalidValue", "is NULL"):
            d.memcpy(dst, src, 8, kind)
    with refused("orErrorInvalidValue", "is NULL"):
        d.memset(None, 0, 8)


@pytest.mark.proves("messages.pass-the-end-of-its-block")
def test_copy_past_the_end_of_a_block_is_refused(block, other, host):
    attempts = [
        (block, host, 1001, d.HOST_TO_DEVICE, "dst", 1000),
        (block + 999, host, 2, d.DEFAULT, "dst", 1),
        (host, block + 10, 991, d.DEVICE_TO_HOST, "src", 990),
        (other, block, 2**64 - 1, d.DEVICE_TO_DEVICE, "dst", 1000),
    ]
    for dst, src, count, kind, role, most in attempts:
        match = f"{role} .* pass the end of its block; .* at most {most}$"
        with refused("orErrorInvalidValue", match):
            d.memcpy(dst, src, count, kind)
    with refused("orErrorInvalidValue", "at most 500"):
        d.memset(block + 500, 0, 501)
    assert d.read(block, 1000) == bytes(range(250)) * 4
    assert d.read(other, 1000) == bytes(1000)


@pytest.mark.proves("emulator.orMemset")
def test_interior_pointers_can_be_copied(block, other):
    d.memcpy(other + 10, block + 20, 30, d.DEVICE_TO_DEVICE)
    assert d.read(other + 9, 32) == b"\0" + bytes(range(20, 50)) + b"\0"
    d.memset(other + 12, 0x1FF, 2)  # the low byte
    assert d.read(other + 11, 4) == b"\x15\xff\xff\x18"


@pytest.mark.parametrize(("dst", "src"), [(0, 100), (100, 0), (0, 0)])
def test_overlapping_copies_are_well_defined(block, dst, src):
    expected = d.read(block + src, 800)
    d.memcpy(block + dst, block + src, 800, d.DEVICE_TO_DEVICE)
    assert d.read(block + dst, 800) == expected


def test_freed_memory_cannot_be_copied_or_set(host):
    pointer = d.malloc(8)
    d.free(pointer)
    with refused(NOT_DEVICE, "dst .* was it freed"):
        d.memcpy(pointer, host, 8, d.HOST_TO_DEVICE)
    with refused(NOT_DEVICE, "src .* was it freed"):
        d.memcpy(host, pointer, 8)
    with refused(NOT_DEVICE, "was it freed"):
        d.memset(pointer, 0, 8)


def test_between_devices_a_copy_needs_no_call_of_its_own(block, other):
    d.memcpy(other, block, 1000)
    assert d.read(other, 1000) == d.read(block, 1000)


@pytest.mark.proves("emulator.orSetHostThreads")
def test_long_copies_and_fills_are_shared_out_among_threads_of_the_host():
    said = d.check_run(
        """
        def share(threads, count, part, args):
            print(threads, count)
            for begin in (count // 2, 0):
                part(args, begin, begin + count // 2)

        lent = HostThreads(CountThreads(lambda: 2), ShareOut(share))
        library.orSetHostThreads(byref(lent))
        block, long = malloc(1 << 19), 3 << 16
        for count in (long - 2, long):
            values = os.urandom(count)
            memcpy(block, values, count)
            memcpy(block + long, block, count)
            assert read(block + long, count) == values
        memcpy(block + 2, block, long)  # in two parts it would smear
        assert read(block + 2, long) == values
        memset(block + 1, 7, long)
        assert read(block, long + 2) == (
            values[:1] + b"\\7" * long + values[-1:]
        )
        library.orSetHostThreads(None)
        memset(block, 0, long)
        """
    )
    assert said.splitlines() == [*["2 196608"] * 5, "2 196610"]


@pytest.mark.proves("messages.not-device-memory")
def test_memset_is_for_device_memory(host, pinned):
    for pointer in (host, pinned):
        with refused(NOT_DEVICE, "not device memory"):
            d.memset(pointer, 0, 8)


@pytest.mark.proves("emulator-system-calls")
def test_system_calls_cannot_reach_device_memory(block):
    with open("/dev/zero", "rb") as zeros:
        view = (ctypes.c_char * 8).from_address(block)
        with pytest.raises(OSError, match="Bad address"):
            os.readv(zeros.fileno(), [view])
    assert d.read(block, 8) == bytes(range(8))


def test_device_memory_is_not_in_the_core_dump_nor_in_children(block):
    space = d.address_space()
    flags = []
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            start = int(found[1], 16) - space.device_base
            inside = 0 <= start < space.kernel_offset + space.device_bytes
        elif inside and line.startswith("VmFlags:"):
            flags.append(line.split()[1:])
    assert len(flags) == 1 + d.device_count()
    for each in flags:
        assert {"dc", "dd"} <= set(each)
    assert not {"rd", "wr"} & set(flags[0])
