#include "csrc/runtime/stream.h"

#include <vector>

namespace openreg {
namespace {

std::vector<orStream_t> default_streams() {
  std::vector<orStream_t> streams(device_count());
  for (size_t device = 0; device < streams.size(); ++device) {
    OPENREG_CHECK(
        orDeviceGetDefaultStream(&streams[device], static_cast<int>(device)));
  }
  return streams;
}

}  // namespace

orStream_t current_stream(c10::DeviceIndex device) {
  static const auto* const streams = new std::vector(default_streams());
  return (*streams)[device];
}

}  // namespace openreg
