#include <cstdio>

#include "device/state.h"

// Work: run now by the thread that launches it, or queued for a worker.

namespace openreg {

std::atomic<Launch> launch_mode{Launch::kAuto};

bool prefers_caller(const orStream& stream) {
  const Launch mode = launch_mode.load(std::memory_order_relaxed);
  return mode == Launch::kBlocking ||
         (mode == Launch::kAuto && stream.number == 0);
}

namespace {

// A host function's inside is closed to launches wherever it runs.
void run_host(const Work& work) {
  const char* const outside = this_thread.inside;
  this_thread.inside = "a host function";
  work.host(work.args.get());
  this_thread.inside = outside;
}

orError_t run(const orStream& stream, const Work& work) {
  trace(orTraceStart, stream, work);
  orError_t answer = orSuccess;
  if (work.host != nullptr) {
    run_host(work);
  } else {
    this_thread.kernel_error[0] = '\0';
    answer = work.kernel(work.args.get());
  }
  trace(orTraceEnd, stream, work);
  return answer;
}

// What a kernel that failed has to say.
struct Complaint {
  char text[512];

  Complaint(const orStream& stream, const Work& work, orError_t answer) {
    const char* const why = this_thread.kernel_error;
    std::snprintf(
        text,
        sizeof(text),
        "kernel %s on device %d answered %s%s%s",
        work.name,
        stream.device->index,
        orGetErrorName(answer),
        why[0] == '\0' ? "" : ": ",
        why);
  }
};

}  // namespace

// [dev-claim] The launch mode decides who runs a piece of work.
orError_t claim(orStream& stream, bool must, bool* here) {
  must =
      must || launch_mode.load(std::memory_order_relaxed) == Launch::kBlocking;
  const bool may = must || prefers_caller(stream);
  *here = may ? take_turn(stream) : join_turn(stream);
  if (*here || !must) {
    return orSuccess;
  }
  const orError_t answer = begin_turn(stream);
  *here = answer == orSuccess;
  return answer;
}
// [/dev-claim]

// [dev-run-in-turn] An error is the caller's, and nothing else comes of it.
orError_t run_in_turn(orStream& stream, const Work& work) {
  const orError_t answer = run(stream, work);
  end_turn(stream);
  if (answer != orSuccess) {
    return fail(
        orErrorLaunchFailure, "%s", Complaint(stream, work, answer).text);
  }
  return orSuccess;
}
// [/dev-run-in-turn]

// [dev-queue] A worker is made when there is work for it.
orError_t queue(const StreamRef& stream, Work&& work) {
  {
    const std::lock_guard lock(stream->mutex);
    if (is_ending()) {
      return fail(orErrorDeviceFailed, "the process is ending");
    }
    if (!stream->has_worker) {
      start_worker(stream);
    }
    stream->queue.emplace_back(std::move(work));
    stream->state.fetch_add(1);
  }
  stream->changed.notify_all();
  return orSuccess;
}
// [/dev-queue]

// [dev-run-queued] A queued kernel has no caller to tell, so its device fails.
// The first failure counts. What is queued after it is passed over, moments
// come as they would, and so nobody who waits is forgotten.
void run_queued(orStream& stream, const Work& work) {
  if (!should_wait(*stream.device)) {
    return;
  }
  this_thread.inside = work.name;
  const orError_t answer = run(stream, work);
  this_thread.inside = "a release function";
  if (answer != orSuccess) {
    set_failure(stream.device, Complaint(stream, work, answer).text);
  }
}
// [/dev-run-queued]

orError_t launch(const StreamRef& stream, Work&& work) {
  announce(*stream, &work);
  bool here = false;
  const orError_t answer = claim(*stream, false, &here);
  if (here) [[likely]] {
    return run_in_turn(*stream, work);
  }
  return answer != orSuccess ? answer : queue(stream, std::move(work));
}

}  // namespace openreg

using namespace openreg;

// [dev-launch-kernel] The one way in which kernels reach a device.
orError_t orLaunchKernel(
    orStream_t stream,
    const char* name,
    orKernelFn fn,
    void* args,
    orReleaseFn release) {
  Work work{orTraceKernel, name, fn, nullptr, 0, Arguments(args, release)};
  Machine* const machine = use_machine();
  if (machine == nullptr) {
    return orPeekAtLastError();
  }
  if (name == nullptr || fn == nullptr) {
    return fail(orErrorInvalidValue, "orLaunchKernel: name or fn is NULL");
  }
  const StreamRef place = enter_stream(machine, "orLaunchKernel", stream);
  if (place == nullptr) {
    return orPeekAtLastError();
  }
  return guarded(
      "orLaunchKernel", [&] { return launch(place, std::move(work)); });
}
// [/dev-launch-kernel]

orError_t orLaunchHostFunc(
    orStream_t stream, orHostFn fn, void* args, orReleaseFn release) {
  Work work{
      orTraceHostFunc,
      "host function",
      nullptr,
      fn,
      0,
      Arguments(args, release)};
  Machine* const machine = use_machine();
  if (machine == nullptr) {
    return orPeekAtLastError();
  }
  if (fn == nullptr) {
    return fail(orErrorInvalidValue, "orLaunchHostFunc: fn is NULL");
  }
  const StreamRef place = enter_stream(machine, "orLaunchHostFunc", stream);
  if (place == nullptr) {
    return orPeekAtLastError();
  }
  return guarded(
      "orLaunchHostFunc", [&] { return launch(place, std::move(work)); });
}

void orSetKernelError(const char* message) {
  std::snprintf(
      this_thread.kernel_error,
      sizeof(this_thread.kernel_error),
      "%s",
      message == nullptr ? "" : message);
}
