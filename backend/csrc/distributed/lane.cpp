#include "csrc/distributed/lane.h"

#include <mutex>
#include <unordered_map>
#include <vector>

#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/stream.h"

namespace openreg {
namespace {

// Streams are made when they run short, and never destroyed.
struct FreeStreams {
  std::mutex mutex;
  std::unordered_map<c10::DeviceIndex, std::vector<c10::Stream>> streams;
};

FreeStreams& free_streams() {
  static auto* const all = new FreeStreams;
  return *all;
}

c10::Stream take_stream(c10::DeviceIndex device) {
  {
    const std::lock_guard lock(free_streams().mutex);
    auto& streams = free_streams().streams[device];
    if (!streams.empty()) {
      const c10::Stream stream = streams.back();
      streams.pop_back();
      return stream;
    }
  }
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  orStream_t stream = nullptr;
  OPENREG_CHECK(orStreamCreateWithPriority(&stream, 0));
  return external_stream(device, stream);
}

}  // namespace

Lane::Lane(c10::DeviceIndex device) : stream_(take_stream(device)) {}

Lane::~Lane() {
  const std::lock_guard lock(free_streams().mutex);
  free_streams().streams[stream_.device_index()].push_back(stream_);
}

}  // namespace openreg
