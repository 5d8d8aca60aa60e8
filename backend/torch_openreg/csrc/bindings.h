#pragma once

#include <pybind11/pybind11.h>

#include "csrc/runtime/device.h"

// What each file of the bindings adds to torch_openreg._C.

namespace openreg {

// Python's integers are wider than an index. One that does not fit is out of
// range for any number of devices, so check_device raises.
inline c10::DeviceIndex to_index(int64_t device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  if (index != device) {
    check_device(device);
  }
  return index;
}

void bind_sharing(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_streams(pybind11::module_& m);
void bind_trace(pybind11::module_& m);
void bind_compiled(pybind11::module_& m);
void bind_distributed(pybind11::module_& m);

}  // namespace openreg
