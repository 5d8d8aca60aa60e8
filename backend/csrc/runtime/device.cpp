#include "csrc/runtime/device.h"

#include <atomic>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/wait.h"

namespace openreg {
namespace {

std::atomic<bool> initialized{false};

void check_available() {
  TORCH_CHECK(
      device_count() > 0,
      "No openreg devices are available: OPENREG_DEVICE_COUNT is 0. Unset it, "
      "or set it to the number of devices to emulate.");
}

}  // namespace

InterpreterLock interpreter_lock;

// [device-error] An error code becomes an exception.
void raise_error(orError_t error, const char* call) {
  TORCH_CHECK(
      error != orErrorForkedProcess,
      "Cannot re-initialize openreg in forked subprocess. To use openreg with "
      "multiprocessing, you must use the 'spawn' start method");
  if (error == orErrorInvalidDevice) {
    check_available();
  }
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  if (error == orErrorDeviceFailed) {
    // No fault of this call, so it is not named.
    throw c10::AcceleratorError(
        here,
        error,
        c10::str(
            orGetErrorDetail(),
            ". What was queued behind it is lost, and the device refuses work "
            "until torch.openreg.reset_device(). Under OPENREG_LAUNCH=blocking "
            "the call that is to blame raises the error."));
  }
  // Which code, what it means, and what the device says about this case.
  auto message = c10::str(
      orGetErrorName(error),
      " (",
      orGetErrorString(error),
      ") from ",
      call,
      ": ",
      orGetErrorDetail());
  if (error == orErrorLaunchFailure) {
    throw c10::AcceleratorError(here, error, std::move(message));
  }
  throw c10::Error(here, std::move(message));
}
// [/device-error]

void check_environment() {
  int count = 0;
  OPENREG_CHECK(orGetDeviceCount(&count));
}

void initialize() {
  check_environment();
  check_available();
  // In a forked child, PyTorch 2.13 makes the threads of its kernels anew when
  // a thread first asks for their number; two that ask at once break that, and
  // the process ends. So one asks before the device and autograd have any.
  std::thread(&at::get_num_threads).join();
  initialized = true;
}

bool is_initialized() noexcept {
  return initialized;
}

// [device-count] Never throws: without a device, the count is 0.
c10::DeviceIndex device_count() noexcept {
  static const auto count = []() -> c10::DeviceIndex {
    int devices = 0;
    const bool known = orGetDeviceCount(&devices) == orSuccess;
    return known ? static_cast<c10::DeviceIndex>(devices) : 0;
  }();
  return count;
}
// [/device-count]

// [device-check] All index checks share one rule and one message.
void check_device(int64_t device) {
  TORCH_CHECK(
      0 <= device && device < device_count(),
      "The device index is out of range. It must be in [0, ",
      static_cast<int>(device_count()),
      "), but got ",
      device,
      ".");
}
// [/device-check]

c10::DeviceIndex current_device() {
  int device = 0;
  OPENREG_CHECK(orGetDevice(&device));
  return static_cast<c10::DeviceIndex>(device);
}

// [device-set] Check the index, then ask the device.
void set_device(c10::DeviceIndex device) {
  check_device(device);
  OPENREG_CHECK(orSetDevice(device));
}
// [/device-set]

// [device-exchange] Two functions that set a device and return the old one.
c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = current_device();
  if (previous != device) {
    set_device(device);
  }
  return previous;
}

c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device) {
  // "No device", the index of a CPU tensor for one, leaves all as it is.
  return device < 0 ? -1 : exchange_device(device);
}
// [/device-exchange]

std::pair<size_t, size_t> device_memory(c10::DeviceIndex device) {
  size_t free = 0, total = 0;
  check_device(device);
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  OPENREG_CHECK(orMemGetInfo(&free, &total));
  return {free, total};
}

void synchronize_device(c10::DeviceIndex device) {
  check_device(device);
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  OPENREG_CHECK_WAIT(orDeviceSynchronize());
}

void reset_device(c10::DeviceIndex device) {
  check_device(device);
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  OPENREG_CHECK_WAIT(orDeviceReset());
}

orDeviceProp device_properties(c10::DeviceIndex device) {
  check_device(device);
  orDeviceProp properties{};
  OPENREG_CHECK(orGetDeviceProperties(&properties, device));
  return properties;
}

}  // namespace openreg
