"""The device functions, from torch.openreg down to the device."""

from __future__ import annotations

import subprocess

import pytest
import torch

from _device import compiler
from _fresh import prints, run
from _session import counting
from _threads import in_thread
from torch_openreg import _C

openreg = torch.openreg


def test_two_devices_by_default():
    assert openreg.device_count() == 2
    assert openreg.is_available()
    assert torch.accelerator.device_count() == 2


@pytest.mark.proves("device.set_device")
@pytest.mark.parametrize("device", [1, "openreg:1", torch.device("openreg", 1)])
def test_set_device_takes_an_index_a_name_and_a_device(device):
    openreg.set_device(device)
    assert openreg.current_device() == 1
    assert torch.empty(1, device="openreg").device.index == 1


@pytest.mark.proves("device-per-thread", "device.current_device")
def test_each_thread_has_its_own_current_device():
    openreg.set_device(1)
    assert in_thread(openreg.current_device) == 0
    in_thread(lambda: openreg.set_device(0))
    assert openreg.current_device() == 1


@pytest.mark.parametrize("index", [2, -1, 127, 300, -300, 2**40])
def test_an_index_out_of_range_names_the_range_and_changes_nothing(index):
    openreg.set_device(1)
    expected = rf"must be in \[0, 2\), but got {index}\."
    for function in (
        openreg.set_device,
        openreg.synchronize,
        openreg.get_device_properties,
    ):
        with pytest.raises(RuntimeError, match="device index is out of range"):
            function(index)
        with pytest.raises(RuntimeError, match=expected):
            function(index)
    assert openreg.current_device() == 1


@pytest.mark.proves("messages.expected-an-openreg-device")
@pytest.mark.parametrize("device", ["cpu", "cuda:1", torch.device("meta")])
def test_another_device_type_is_refused(device):
    for function in (openreg.set_device, openreg.device, openreg.synchronize):
        with pytest.raises(ValueError, match="Expected an openreg device"):
            function(device)
    assert openreg.current_device() == 0


@pytest.mark.proves("device.exchange_device")
def test_exchange_returns_the_device_that_was_current():
    assert _C._exchange_device(1) == 0
    assert _C._exchange_device(1) == 1
    with pytest.raises(RuntimeError, match="out of range"):
        _C._exchange_device(-1)
    assert _C._get_device() == 1


@pytest.mark.proves("device.maybe_exchange_device")
def test_maybe_exchange_with_a_negative_index_changes_nothing():
    assert _C._maybe_exchange_device(1) == 0
    assert _C._maybe_exchange_device(-1) == -1
    assert _C._get_device() == 1


class TestDeviceContext:
    def test_goes_back_after_an_exception(self):
        with pytest.raises(KeyError), openreg.device(1):
            assert openreg.current_device() == 1
            raise KeyError
        assert openreg.current_device() == 0

    def test_one_object_can_be_entered_inside_itself(self):
        on_1 = openreg.device(1)
        with on_1:
            with openreg.device("openreg:0"):
                with on_1:
                    assert openreg.current_device() == 1
                assert openreg.current_device() == 0
            assert openreg.current_device() == 1
        assert openreg.current_device() == 0

    def test_without_an_index_stays_where_it_was_made(self):
        here = openreg.device("openreg")
        openreg.set_device(1)
        with here:
            assert openreg.current_device() == 0
        assert openreg.current_device() == 1

    def test_a_negative_index_changes_nothing(self):
        openreg.set_device(1)
        with openreg.device(-1):
            assert openreg.current_device() == 1
        assert openreg.current_device() == 1

    def test_an_index_out_of_range_raises_on_entry(self):
        with pytest.raises(RuntimeError, match="out of range"):
            openreg.device(2).__enter__()

    def test_device_of_follows_tensors_and_storages(self):
        x = torch.empty(1, device="openreg:1")
        for obj in (x, x.untyped_storage()):
            with openreg.device_of(obj):
                assert openreg.current_device() == 1
        with openreg.device_of(torch.empty(1)):
            assert openreg.current_device() == 0


def test_accelerator_follows_and_restores():
    with pytest.raises(KeyError), torch.accelerator.device_index(1):
        assert openreg.current_device() == 1
        raise KeyError
    assert openreg.current_device() == 0
    torch.accelerator.set_device_index("openreg:1")
    assert torch.accelerator.current_device_index() == 1


def test_properties_describe_the_device():
    properties = openreg.get_device_properties("openreg:1")
    free, total = torch.accelerator.get_memory_info(1)
    assert properties.name == openreg.get_device_name(1) == "OpenReg"
    assert properties.total_memory == total >= free
    assert properties.multi_processor_count >= 1
    capability = (properties.major, properties.minor)
    assert openreg.get_device_capability() == capability
    assert repr(properties).startswith(
        "_OpenRegDeviceProperties(name='OpenReg'"
    )


def test_each_device_computes_in_bfloat16():
    assert openreg.is_bf16_supported()
    x = torch.ones(2, dtype=torch.bfloat16, device="openreg:1")
    assert (x + x).sum().item() == 4


def test_devices_are_peers_of_each_other_but_not_of_themselves():
    assert openreg.can_device_access_peer(0, "openreg:1")
    assert not openreg.can_device_access_peer("openreg:1", 1)
    openreg.set_device(1)
    assert openreg.can_device_access_peer("openreg", 0)
    for pair in ((0, 2), (2, 0), (-1, 0)):
        with pytest.raises(RuntimeError, match="index is out of range"):
            openreg.can_device_access_peer(*pair)
    with pytest.raises(ValueError, match="Expected an index"):
        openreg.can_device_access_peer(0, "openreg")


@pytest.mark.parametrize("device", [None, 1, "openreg:1", "openreg"])
def test_synchronize_returns_to_the_current_device(device):
    openreg.synchronize(device)
    torch.accelerator.synchronize(device)
    assert openreg.current_device() == 0


@pytest.mark.one_mode
@pytest.mark.proves("frontend-asleep")
def test_asking_and_seeding_do_not_wake_the_backend():
    told = prints(
        """
        import torch
        from multiprocessing import get_context

        def child():
            x = torch.rand(2, device="openreg:1")
            torch.manual_seed(3)
            assert torch.equal(x.cpu(), torch.rand(2)), x
            print("child used the device")

        assert torch.openreg.is_available()
        assert torch.openreg.device_count() == 2
        assert torch.accelerator.current_accelerator(True).type == "openreg"
        assert not torch.ones(1).is_pinned()
        torch.ones(1, requires_grad=True).backward()  # asks for live devices
        torch.manual_seed(4)
        torch.manual_seed(3)
        assert not torch.openreg.is_initialized()
        assert torch.openreg.default_generators == ()
        # So a forked child may be the first to use the devices.
        process = get_context("fork").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        torch.openreg.init()
        assert torch.openreg.is_initialized()
        assert len(torch.openreg.default_generators) == 2
        assert torch.openreg.initial_seed() == 3
        """
    )
    assert told == "child used the device\n"


# Whoever begins a thread, but for a process's first one, takes long to do so.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
typedef void* (*work)(void*);
typedef int (*begin)(pthread_t*, const pthread_attr_t*, work, void*);
int pthread_create(
    pthread_t* thread, const pthread_attr_t* how, work run, void* with) {
  if (syscall(SYS_gettid) != getpid()) usleep(50000);
  return ((begin)dlsym(RTLD_NEXT, "pthread_create"))(thread, how, run, with);
}
"""


@pytest.mark.one_mode
def test_threads_of_a_forked_child_do_not_make_pytorchs_at_once(tmp_path):
    """Kernels and autograd of two devices begin at the same time."""
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW)
    flags = ("-shared", "-fPIC", "-x", "c", str(source), "-o", str(library))
    subprocess.run([*compiler(), *flags, "-ldl"], check=True)
    told = prints(
        """
        import os, torch, warnings
        warnings.simplefilter("ignore")  # Python 3.12: of forks with threads
        torch.set_num_threads(2)
        torch.get_num_threads()  # which a fork makes no thread ask again
        child = os.fork()
        if child == 0:
            xs = [
                torch.ones(3, device=f"openreg:{index}", requires_grad=True)
                for index in range(2)
            ]
            sum((x * 2).sum().to("openreg:0") for x in xs).backward()
            print(*(x.grad.tolist() for x in xs), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        """,
        new=True,
        LD_PRELOAD=str(library),
        OPENREG_LAUNCH="async",
    )
    assert told.splitlines() == ["[2.0, 2.0, 2.0] [2.0, 2.0, 2.0]", "0"]


@pytest.mark.one_mode
@pytest.mark.proves(
    "frontend-fork",
    "autoload.forked",
    "messages.cannot-re-initialize-openreg-in-forked",
)
def test_a_child_forked_after_use_is_told_to_spawn():
    told = prints(
        """
        import os, torch
        x = torch.ones(2, device="openreg:1")
        pinned = torch.ones(2).pin_memory()
        assert not torch.openreg._is_in_bad_fork()
        child = os.fork()
        if child == 0:
            assert torch.openreg._is_in_bad_fork()
            assert not torch.openreg.is_initialized()
            torch.manual_seed(1)  # seeds what can be seeded
            for use in (
                torch.openreg.init,
                torch.openreg.current_device,
                lambda: torch.ones(2, device="openreg"),
                lambda: torch.openreg.synchronize(),
                lambda: x + 1,
            ):
                try:
                    use()
                except RuntimeError as error:
                    print(error)
            del x, pinned  # frees quietly
            raise SystemExit
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert (x + 1).tolist() == [2, 2]
        """,
        **counting(),
    ).splitlines()
    message = (
        "Cannot re-initialize openreg in forked subprocess. To use openreg "
        "with multiprocessing, you must use the 'spawn' start method"
    )
    assert told == [message] * 5


@pytest.mark.proves("hooks.high.init", "device.device_count")
@pytest.mark.one_mode
def test_without_devices_only_their_use_fails():
    told = run(
        """
        import torch
        assert not torch.openreg.is_available()
        assert torch.accelerator.current_accelerator(True) is None
        torch.manual_seed(1)
        torch.ones(1, requires_grad=True).backward()
        torch.ones(1, device="openreg")
        """,
        OPENREG_DEVICE_COUNT="0",
    )
    assert told.returncode == 1
    assert "No openreg devices are available: OPENREG_DEVICE_COUNT is 0" in (
        told.stdout
    )
