#include <cstdio>

#include "device/launch.h"
#include "device/worker.h"

// Kernels and host functions, and what becomes of a kernel that fails.

namespace emulator {

namespace {

std::string sentence(const orStream& at, const char* name, orError_t answer) {
  char text[512];
  std::snprintf(
      text,
      sizeof(text),
      "kernel %s on device %d answered %s%s",
      name,
      at.device->index,
      orGetErrorName(answer),
      complaint("").c_str());
  return text;
}

orError_t run_kernel(orKernelFn kernel, void* args) {
  this_thread.has_complained = false;
  return kernel(args);
}

// The inside of a host function is closed to launches wherever it runs.
orError_t run_host(orHostFn host, void* args) {
  const char* const outside = this_thread.inside;
  this_thread.inside = "a host function";
  host(args);
  this_thread.inside = outside;
  return orSuccess;
}

}  // namespace

orError_t run_work(const Work& work) {
  void* const args = work.args.get();
  return work.host != nullptr ? run_host(work.host, args)
                              : run_kernel(work.kernel, args);
}

std::string complaint(const char* otherwise) {
  const std::string said = std::string(": ") + texts().complaint;
  return this_thread.has_complained ? said : otherwise;
}

orError_t report_kernel(const orStream& at, const char* name, orError_t error) {
  const std::string text = sentence(at, name, error);
  return fail(orErrorLaunchFailure, "%s", text.c_str());
}

// A worker is made when there is work for it.
orError_t queue(const StreamRef& stream, Work&& work) {
  {
    const std::lock_guard lock(stream->mutex);
    if (is_ending()) {
      return fail(orErrorDeviceFailed, "the process is ending");
    }
    if (stream->branch != nullptr) {
      return keep(*stream, std::move(work));
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

// [dev-run-queued] A queued kernel has no caller to tell, so its device fails.
// The first failure counts. What is queued after it is passed over, moments
// come as they would, and so nobody who waits is forgotten.
void run_queued(orStream& stream, const Work& work) {
  if (!should_wait(*stream.device)) {
    return;
  }
  const char* const outside = this_thread.inside;
  this_thread.inside = work.label.name;
  const orError_t answer =
      run(stream, work.label, [&] { return run_work(work); });
  this_thread.inside = outside;
  if (answer != orSuccess) {
    set_failure(stream.device, sentence(stream, work.label.name, answer));
  }
}
// [/dev-run-queued]

}  // namespace emulator

using namespace emulator;

// [dev-launch-kernel] Runs a kernel at once in its turn, or queues it.
// Either way its arguments are the work's, from the start.
orError_t orLaunchKernel(
    orStream_t stream,
    const char* name,
    orKernelFn fn,
    void* args,
    orReleaseFn release) {
  Work work{{orTraceKernel, name}, fn, nullptr, {args, release}};
  const auto launch_kernel = [&](const StreamRef& place) {
    if (name == nullptr || fn == nullptr) {
      return fail(orErrorInvalidValue, "orLaunchKernel: name or fn is NULL");
    }
    const auto run = [&] { return run_kernel(fn, args); };
    const auto pack = [&] { return std::move(work); };
    return launch(place, work.label, false, run, pack);
  };
  return with_stream("orLaunchKernel", use_machine(), stream, launch_kernel);
}
// [/dev-launch-kernel]

orError_t orLaunchHostFunc(
    orStream_t stream, orHostFn fn, void* args, orReleaseFn release) {
  Work work{{orTraceHostFunc, "host function"}, nullptr, fn, {args, release}};
  const auto launch_host = [&](const StreamRef& place) {
    if (fn == nullptr) {
      return fail(orErrorInvalidValue, "orLaunchHostFunc: fn is NULL");
    }
    const auto run = [&] { return run_host(fn, args); };
    const auto pack = [&] { return std::move(work); };
    return launch(place, work.label, false, run, pack);
  };
  return with_stream("orLaunchHostFunc", use_machine(), stream, launch_host);
}

void orSetKernelError(const char* message) {
  const char* const said = message == nullptr ? "" : message;
  std::snprintf(texts().complaint, sizeof(Texts::complaint), "%s", said);
  this_thread.has_complained = said[0] != '\0';
}
