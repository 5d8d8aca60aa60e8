#pragma once

#include <c10/core/Stream.h>

#include "csrc/runtime/device.h"

// Streams, of which each device has one: its default stream. All calls of the
// driver return when their work is done, so it has nothing to order yet.

namespace openreg {

// The only stream of `device`; -1 means the current device.
inline c10::Stream default_stream(c10::DeviceIndex device) {
  const auto index = device == -1 ? current_device() : device;
  check_device(index);
  return c10::Stream(
      c10::Stream::DEFAULT, c10::Device(c10::kPrivateUse1, index));
}

// This thread's current stream of `device`.
inline c10::Stream get_stream(c10::DeviceIndex device) {
  return default_stream(device);
}

// Makes `stream` current and returns the one that was. Raises when there is no
// such stream.
inline c10::Stream exchange_stream(c10::Stream stream) {
  const auto only = default_stream(stream.device_index());
  TORCH_CHECK(stream == only, "openreg has ", only, " alone, not ", stream);
  return only;
}

// Waits for all work launched on `stream` so far.
inline void synchronize_stream(c10::Stream stream) {
  synchronize_device(stream.device_index());
}

}  // namespace openreg
