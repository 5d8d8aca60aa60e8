#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/StorageImpl.h>

#include "csrc/runtime/device.h"
#include "csrc/runtime/pool/pool.h"

// What PyTorch's side of a capture remembers, beside the device's graph: where
// its memory comes from, and what must still be there at a launch.

namespace openreg {

struct Capture {
  Capture(c10::DeviceIndex index, uint64_t pool_number)
      : device(index), pool(pool_number) {}

  // Memory that the graph uses and does not keep.
  struct Use {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* address;
  };

  const c10::DeviceIndex device;
  const uint64_t pool;  // of memory: more than one graph may use it
  std::mutex mutex;     // guards all below
  std::unordered_map<const c10::StorageImpl*, Use> uses;
  std::vector<at::Generator> generators;  // that a launch draws from
};

std::shared_ptr<Capture> find_capture(orStream_t stream);

// The capture that `stream` is in, or NULL.
inline std::shared_ptr<Capture> capture_of(orStream_t stream) {
  return Pool::captures.load(std::memory_order_relaxed) == 0
             ? nullptr
             : find_capture(stream);
}

// Begins a capture on `stream`. Ends it, and returns the device's graph, or
// raises what broke it.
void begin_capture(orStream_t stream, std::shared_ptr<Capture> capture);
orGraph_t end_capture(orStream_t stream);

// Notes that each launch draws from `generator`; of NULL, nothing.
void note_draw(Capture* capture, const at::Generator& generator);

// Raises if something that the graph uses is no longer where it was.
void check_uses(Capture& capture);

}  // namespace openreg
