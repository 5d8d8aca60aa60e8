#include "csrc/runtime/host_allocator.h"

#include <chrono>
#include <cstring>

#include "csrc/runtime/device.h"

namespace openreg {
namespace {

// Microseconds that `work` takes, for the allocator's statistics.
template <typename Work>
int64_t timed(Work&& work) {
  using namespace std::chrono;
  const auto start = steady_clock::now();
  work();
  return duration_cast<microseconds>(steady_clock::now() - start).count();
}

// [host-allocator-cache] PyTorch caches pinned blocks; we say how to get one.
// A freed block that a stream read comes back once that stream is idle: a
// stream stands for an event recorded on it.
struct PinnedCache : at::CachingHostAllocatorImpl<c10::Stream, c10::Stream> {
  void copy_data(void* dst, const void* src, size_t bytes) const override {
    std::memcpy(dst, src, bytes);
  }

 private:
  using Block = at::HostBlock<c10::Stream>;

  void allocate_host_memory(size_t bytes, void** address) override {
    const auto time =
        timed([&] { OPENREG_CHECK(orMallocHost(address, bytes)); });
    std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_alloc_time.increase(time);
  }

  void free_block(Block* block) override {
    const auto time = timed([&] { OPENREG_CHECK(orFreeHost(block->ptr_)); });
    std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(time);
  }

  void record_stream(
      std::optional<std::vector<c10::Stream>>& events,
      c10::Stream stream) override {
    events->push_back(stream);
  }

  bool query_event(c10::Stream& stream) override {
    return stream.query();
  }
};
// [/host-allocator-cache]

void free_pinned(void* block);

using PinnedAllocator =
    at::CachingHostAllocatorInterface<PinnedCache, &free_pinned>;

PinnedAllocator* pinned_allocator() {
  // Leaked on purpose: a tensor may be freed after static destructors ran.
  static auto* const allocator = new PinnedAllocator;
  return allocator;
}

void free_pinned(void* block) {
  pinned_allocator()->free(block);
}

}  // namespace

at::HostAllocator* host_allocator() {
  return pinned_allocator();
}

// [host-allocator-pinned] The device knows its blocks, wherever one points.
bool is_pinned(const void* address) {
  orPointerAttributes attributes{};
  return orPointerGetAttributes(&attributes, address) == orSuccess &&
         attributes.type == orMemoryTypeHost;
}
// [/host-allocator-pinned]

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, host_allocator())

}  // namespace openreg
