#pragma once

#include <c10/core/Stream.h>

#include "csrc/runtime/device.h"

namespace openreg {

// A stream that nobody else launches on while this object lives. A kernel that
// waits for another process holds up its stream, so it may be none that a user
// could get from the pool.
class Lane {
 public:
  explicit Lane(c10::DeviceIndex device);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  c10::Stream stream() const {
    return stream_;
  }

 private:
  c10::Stream stream_;
};

}  // namespace openreg
