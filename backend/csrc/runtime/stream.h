#pragma once

#include "csrc/runtime/device.h"

namespace openreg {

// The stream on which this thread launches work for `device`, which must be
// in range. For now that is always the device's default stream.
OPENREG_EXPORT orStream_t current_stream(c10::DeviceIndex device);

}  // namespace openreg
