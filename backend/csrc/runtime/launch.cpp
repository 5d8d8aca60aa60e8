#include "csrc/runtime/launch.h"

#include <ATen/Parallel.h>

namespace openreg {
namespace {

// What a kernel raised that ran on the thread that launched it.
thread_local std::exception_ptr raised;

// [launch-run] No C++ exception crosses the C API.
orError_t run(void* args) noexcept {
  auto* const work = static_cast<QueuedWork*>(args);
  try {
    if (at::get_num_threads() != work->threads) {
      at::set_num_threads(work->threads);
    }
    work->run();
    return orSuccess;
  } catch (const std::exception& error) {
    const auto* const ours = dynamic_cast<const c10::Error*>(&error);
    orSetKernelError(ours ? ours->what_without_backtrace() : error.what());
    raised = std::current_exception();
  } catch (...) {
    orSetKernelError("it raised what is no std::exception");
    raised = std::current_exception();
  }
  return orErrorLaunchFailure;
}
// [/launch-run]

void release(void* args) noexcept {
  delete static_cast<QueuedWork*>(args);
}

}  // namespace

// [launch-queued] An error at the call is thrown; a later one fails the device.
void hand_to_stream(const Call& call, std::unique_ptr<QueuedWork> work) {
  work->threads = at::get_num_threads();
  raised = nullptr;
  const orError_t error = without_interpreter_lock([&] {
    return orLaunchKernel(
        call.stream, call.name, &run, work.release(), &release);
  });
  if (error != orSuccess) {
    if (raised) {
      std::rethrow_exception(std::exchange(raised, nullptr));
    }
    raise_error(error, call.name);
  }
}
// [/launch-queued]

}  // namespace openreg
