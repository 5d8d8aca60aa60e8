#pragma once

#include <utility>

#include <c10/core/Device.h>
#include <c10/macros/Export.h>

#include "device/openreg.h"

// The device functions that the guard, the hooks and the Python frontend share.
// Every function but device_count and maybe_exchange_device checks its index
// and raises c10::Error ("The device index is out of range ...").

namespace openreg {

// [device-export] What libtorch_openreg.so offers to the bindings.
#define OPENREG_EXPORT __attribute__((visibility("default")))
// [/device-export]

// [device-call] Every error code of the device becomes an exception.
// Raises c10::Error with the code's name, its meaning and the device's own
// sentence, c10::AcceleratorError when a kernel has failed.
[[noreturn]] OPENREG_EXPORT void raise_error(orError_t error, const char* call);

// Raises so when an or* call fails: OPENREG_CHECK(orSetDevice(1)).
#define OPENREG_CHECK(call)                  \
  do {                                       \
    const orError_t error_ = (call);         \
    if (C10_UNLIKELY(error_ != orSuccess)) { \
      ::openreg::raise_error(error_, #call); \
    }                                        \
  } while (0)
// [/device-call]

// Raises when an OPENREG_* variable is malformed, or the devices' addresses
// cannot be had. Wakes no device.
OPENREG_EXPORT void check_environment();

// Brings the devices up. Raises when there is none, or when the environment
// asks for something that cannot be. Calling it again costs nothing.
OPENREG_EXPORT void initialize();

// Whether initialize() has succeeded.
OPENREG_EXPORT bool is_initialized() noexcept;

// The number of devices; 0 instead of an error when there is none to be had.
OPENREG_EXPORT c10::DeviceIndex device_count() noexcept;

// This thread's current device.
OPENREG_EXPORT c10::DeviceIndex current_device();

// Makes `device` current for this thread.
OPENREG_EXPORT void set_device(c10::DeviceIndex device);

// Makes `device` current and returns the one that was.
OPENREG_EXPORT c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// As exchange_device; a negative index changes nothing and returns -1.
OPENREG_EXPORT c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device);

// Raises unless 0 <= device < device_count().
OPENREG_EXPORT void check_device(int64_t device);

// What there is to know about `device`.
OPENREG_EXPORT orDeviceProp device_properties(c10::DeviceIndex device);

// The free and the total bytes of `device`.
std::pair<size_t, size_t> device_memory(c10::DeviceIndex device);

// Waits for all work of `device`.
OPENREG_EXPORT void synchronize_device(c10::DeviceIndex device);

// Ends the failed state of `device`, in which it refuses all work.
OPENREG_EXPORT void reset_device(c10::DeviceIndex device);

}  // namespace openreg
