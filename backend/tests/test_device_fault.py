"""What happens when the host touches device memory, and in forked children."""

import signal
import subprocess

import pytest

import _device as d

pytestmark = pytest.mark.one_mode

MARK = "openreg: the host touched device memory at "


# The sentence


@pytest.mark.proves("emulator.orExplainFault")
def test_fault_in_a_block_is_explained():
    d.set_device(1)
    pointer = d.malloc(1000)
    d.set_device(0)
    assert d.explain_fault(pointer + 24) == (
        f"{MARK}{pointer + 24:#x}: device 1, byte 24 of the block of 1000 "
        f"bytes at {pointer:#x}. Copy it to the host first, as x.cpu() does."
    )
    d.free(pointer)
    assert d.explain_fault(pointer) == (
        f"{MARK}{pointer:#x}: device 1, no live block (freed, or never "
        "allocated). Copy it to the host first, as x.cpu() does."
    )


def test_record_of_a_freed_block_serves_the_next():
    blocks = [d.malloc(size) for size in (10, 20, 30)]
    d.free(blocks.pop(1))
    blocks.append(d.malloc(40))
    for pointer, size in zip(blocks, (10, 30, 40), strict=True):
        assert f"the block of {size} bytes" in d.explain_fault(pointer)
        d.free(pointer)
    for pointer in blocks:
        assert "no live block" in d.explain_fault(pointer)


def test_other_addresses_are_not_the_devices():
    space = d.address_space()
    pointer = d.malloc(8)
    for address in (
        None,
        8,
        space.device_base - 1,
        space.device_base + space.device_bytes,
        pointer + space.kernel_offset,
    ):
        assert d.explain_fault(address) == ""
    d.free(pointer)


@pytest.mark.parametrize("size", [1, 2, 80])
def test_sentence_is_cut_to_its_buffer(size):
    base = d.address_space().device_base
    whole = d.explain_fault(base)
    assert d.explain_fault(base, size) == whole[: size - 1]


def test_no_buffer_no_sentence():
    base = d.address_space().device_base
    assert d.library.orExplainFault(base, None, 8) == 0
    assert d.library.orExplainFault(base, b"", 0) == 0


# The signal

TOUCH = """
    pointer = malloc(1000)
    print(hex(pointer), flush=True)
    {touch}
    print("not reached")
"""
TOUCHES = {
    "read": "ctypes.string_at(pointer + 24, 1)",
    "write": "ctypes.memset(pointer + 24, 1, 1)",
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_host_access_dies_with_one_line(touch):
    done = d.run(TOUCH.format(touch=TOUCHES[touch]))
    assert done.returncode == -signal.SIGSEGV
    (pointer,) = done.stdout.split()
    assert done.stderr == (
        f"{MARK}{int(pointer, 16) + 24:#x}: device 0, byte 24 of the block of "
        f"1000 bytes at {pointer}. Copy it to the host first, as x.cpu() "
        "does.\n"
    )


def test_handler_from_before_comes_next():
    code = "import faulthandler; faulthandler.enable()\n"
    touch = TOUCHES["read"]
    done = d.run(code + TOUCH.replace("\n    ", "\n").format(touch=touch))
    assert done.returncode == -signal.SIGSEGV
    first, rest = done.stderr.split("\n", 1)
    assert first.startswith(MARK)
    assert rest.startswith("Fatal Python error: Segmentation fault")
    assert "in string_at" in rest


@pytest.mark.proves("environment.OPENREG_SEGV_HANDLER")
def test_handler_can_be_left_out():
    done = d.run(TOUCH.format(touch=TOUCHES["read"]), OPENREG_SEGV_HANDLER="0")
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == ""


def test_other_faults_are_left_as_they_are():
    done = d.run("malloc(8); ctypes.string_at(8, 1)")
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS"])
def test_sent_signal_still_kills(name):
    number = getattr(signal, name)
    done = d.run(f"malloc(8); os.kill(os.getpid(), {number}); print('alive')")
    assert done.returncode == -number
    assert done.stdout == done.stderr == ""


@pytest.fixture(scope="module")
def fault_program(tmp_path_factory):
    return d.build("device_fault.cpp", tmp_path_factory.mktemp("fault"))


@pytest.mark.parametrize(
    ("earlier", "lines"),
    [("siginfo", 1), ("plain", 1), ("ignored", 0), ("default", 0)],
)
def test_signal_is_handed_over(fault_program, earlier, lines):
    done = subprocess.run(
        [fault_program, earlier],
        capture_output=True,
        text=True,
        timeout=d.PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(MARK) == done.stderr.count("\n") == lines


# Children

FORK = """
    import warnings
    warnings.simplefilter("ignore")
    {before}
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        {inside}
        sys.stdout.flush()
        ctypes.CDLL(None).exit(0)  # C's, after which coverage is counted
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child", status)
    {after}
"""


def fork(before, inside, after=""):
    code = FORK.format(
        before=before,
        inside=inside.replace("\n", "\n        "),
        after=after,
    )
    return d.check_run(code).splitlines()


@pytest.mark.proves(
    "errors.codes.orErrorForkedProcess",
    "messages.this-process-was-forked-from-one",
)
def test_child_of_a_user_is_refused_by_every_call():
    lines = fork("malloc(8)", d.ASK_EVERYTHING.replace("\n    ", "\n"))
    assert lines.pop() == "child 0"
    quiet = {"orFree", "orFreeHost"}
    assert len(lines) == 16
    for line in lines:
        name, answer = line.split(" ", 1)
        expected = (
            "orSuccess"
            if name in quiet
            else "orErrorForkedProcess: this process was forked from one that "
            "had used the device; start it with 'spawn' instead: "
            "multiprocessing.set_start_method('spawn')"
        )
        assert answer == expected, name


@pytest.mark.parametrize(
    "use",
    [
        "malloc(8)",
        "malloc_host(8)",
        "memory_info()",
        "launch(Kernel(lambda args: 0))",
    ],
)
def test_use_before_the_fork_is_what_counts(use):
    inside = "try: malloc(8)\nexcept DeviceError as error: print(error.name)"
    lines = fork(use, inside, use)
    assert lines == ["orErrorForkedProcess", "child 0"]


def test_child_of_a_parent_that_only_asked_works():
    lines = fork(
        "base = address_space().device_base; set_device(1)",
        "print(get_device(), address_space().device_base == base)\n"
        "p = malloc(8); memset(p, 7, 8); print(read(p, 8) == b'\\7' * 8)\n"
        "free(p)",
        "print(read(malloc(8), 8) == bytes(8))",
    )
    assert lines == ["1 True", "True", "child 0", "True"]


def test_child_does_not_see_device_memory():
    lines = fork(
        "p = malloc(8); memset(p, 7, 8); k = p + address_space().kernel_offset",
        "files = os.listdir('/proc/self/fd')\n"
        "links = [f'/proc/self/fd/{name}' for name in files]\n"
        "print(any('openreg-device' in os.readlink(link) for link in links\n"
        "          if os.path.islink(link)))\n"
        "sys.stdout.flush()\n"
        "ctypes.string_at(k, 1)",
        "print(read(p, 1))",
    )
    assert lines == ["False", f"child {-signal.SIGSEGV}", repr(b"\7")]


def test_frees_in_a_child_leave_the_parents_memory_alone():
    lines = fork(
        "p = malloc(8); h = malloc_host(8); memset(p, 7, 8)",
        "free(p); free_host(h)",
        "print(read(p, 8) == b'\\7' * 8); free(p); free_host(h)",
    )
    assert lines == ["child 0", "True"]


def test_spawned_process_works():
    code = "malloc(8); print(subprocess.run([sys.executable, '-c', {inner!r}]))"
    inner = "from _device import *; malloc(8)"
    assert "returncode=0" in d.check_run(code.format(inner=inner))


# Threads


def test_threads_keep_their_own_blocks(tmp_path):
    done = subprocess.run(
        [d.build("device_threads.cpp", tmp_path)],
        capture_output=True,
        text=True,
        timeout=d.PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8 threads, 2 devices: all bytes free again\n"
