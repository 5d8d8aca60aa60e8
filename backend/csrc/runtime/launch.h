#pragma once

#include <exception>
#include <utility>

#include "csrc/runtime/stream.h"

namespace openreg {

// [launch-kernel] Every kernel reaches the device through this one function.
// Runs `kernel` in the order of the current stream of `device` and raises what
// it raised. `name` must outlive the process: a literal or a schema's name.
template <typename Kernel>
void launch(c10::DeviceIndex device, const char* name, Kernel&& kernel) {
  struct Work {
    Kernel& kernel;
    std::exception_ptr error;
  } work{kernel, nullptr};
  // No C++ exception may cross the C API, so it travels beside the call.
  const auto run = [](void* args) noexcept -> orError_t {
    auto* self = static_cast<Work*>(args);
    try {
      self->kernel();
      return orSuccess;
    } catch (...) {
      self->error = std::current_exception();
      return orErrorLaunchFailure;
    }
  };
  const orError_t error =
      orLaunchKernel(current_stream(device), name, run, &work, nullptr);
  if (C10_UNLIKELY(error != orSuccess)) {
    if (work.error) {
      std::rethrow_exception(work.error);
    }
    raise_error(error, name);
  }
}
// [/launch-kernel]

}  // namespace openreg
