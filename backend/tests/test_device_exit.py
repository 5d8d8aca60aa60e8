"""What becomes of streams when processes fork or end, and of many threads."""

import os
import subprocess

import pytest

import _device as d

pytestmark = pytest.mark.one_mode


def test_forked_child_is_cut_off_from_streams():
    code = """
    stream, event, gate = make_stream(), make_event(), Gate()
    listener = ctypes.cast(TraceFunction(lambda record, user: None), c_void_p)
    gate.hold(stream)
    record(event, stream)
    if os.fork() == 0:
        for name, *arguments in [
            ("orStreamQuery", stream), ("orStreamSynchronize", stream),
            ("orStreamDestroy", stream), ("orEventQuery", event),
            ("orEventDestroy", event), ("orDeviceSynchronize",),
            ("orDeviceReset",), ("orStreamBeginTurn", None, b"turn"),
            ("orStreamEndTurn", None), ("orTraceUnsubscribe", None),
            ("orTraceSubscribe", byref(c_void_p()), listener, None),
        ]:
            try:
                call(name, *arguments)
                print(name)
            except DeviceError as error:
                assert error.name == "orErrorForkedProcess"
        assert library.orStreamRunsInline(stream) == 0
        raise SystemExit(3)  # whose drain finds nothing to do
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    gate.open()
    synchronize(stream)
    """
    assert d.check_run(code, OPENREG_LAUNCH="auto") == "3\n"


@pytest.mark.parametrize("which", ["None", "make_stream()"])
def test_exit_drops_pending_work(which):
    code = f"""
    stream, event, gate = {which}, make_event(), Gate()
    kernel = Kernel(lambda args: print("ran") or 0)
    release = Release(lambda args: print("released"))
    gate.hold(stream)  # and never opened
    launch(kernel, stream, 1, release)
    record(event, stream)
    other = make_stream()
    wait_event(other, event)
    launch(kernel, other, 2, release)
    print("end")
    """
    assert d.check_run(code, OPENREG_LAUNCH="auto") == "end\n"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return d.build("device_streams.cpp", tmp_path_factory.mktemp("streams"))


def drive(driver, what, mode):
    done = subprocess.run(
        [driver, what],
        env={**os.environ, "OPENREG_LAUNCH": mode},
        capture_output=True,
        text=True,
        timeout=d.PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["auto", "async"])
def test_exit_awaits_the_kernel_that_runs_and_begins_no_other(driver, mode):
    """Who waits for a turn is told, or the driver would never end."""
    assert drive(driver, "exit", mode) == (
        "main ends\nrunning kernel ended\nafter the drain, work runs at once\n"
    )


@pytest.mark.parametrize("mode", ["auto", "async", "blocking"])
def test_many_threads_streams_events_and_turns(driver, mode):
    assert drive(driver, "stress", mode) == (
        "order kept, nothing lost\nfailures told, nothing lost\n"
    )
