#include "csrc/runtime/host_allocator.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <c10/core/AllocatorConfig.h>

#include "csrc/runtime/event.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

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

// [host-allocator-use] What must finish before a freed block is reused.
struct DestroyEvent {
  void operator()(orEvent_t event) const {
    orEventDestroy(event);
  }
};

class Use {
 public:
  explicit Use(c10::Stream stream) {
    orEvent_t event = nullptr;
    try {
      stream_ = handle_of(stream);
      record_event(&event, stream, -1, /*timing=*/false);
      event_.reset(event);
    } catch (const c10::Error&) {
      // To free a block never raises, not even on a device that has failed.
      if (event != nullptr) {
        orEventDestroy(event);
      }
    }
  }

  // A device that has failed may still be copying; a reset waits for that.
  bool is_over() const {
    return stream_ == nullptr || (event_ ? orEventQuery(event_.get())
                                         : orStreamQuery(stream_)) == orSuccess;
  }

 private:
  orStream_t stream_ = nullptr;  // NULL: it is gone, and its work with it
  // NULL, where none could be recorded, stands for all work of the stream.
  std::unique_ptr<orEvent, DestroyEvent> event_;
};
// [/host-allocator-use]

// [host-allocator-cache] PyTorch caches pinned blocks.
// We say how to get one, and how to tell that a stream has done with it.
struct PinnedCache : at::CachingHostAllocatorImpl<c10::Stream, Use> {
  std::pair<void*, void*> allocate(size_t bytes) override;
  void free(void* block) override;
  void empty_cache() override;
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
  void free_block(Block* block) override;
  void free_given_up();
  void record_stream(
      std::optional<std::vector<Use>>& uses, c10::Stream stream) override {
    uses->emplace_back(stream);
  }
  bool query_event(Use& use) override {
    return use.is_over();
  }
  c10::Stream get_current_stream() const override {
    return get_stream(-1);
  }
  bool stream_is_capturing(c10::Stream stream) const override {
    return orStreamGetCapture(handle_of(stream)) != 0;
  }

  std::mutex mutex_;
  std::vector<void*> given_up_;
};
// [/host-allocator-cache]

// [host-allocator-free] Blocks are freed later, when no lock is held.
// Freeing waits for the device. PyTorch gives blocks up under its locks, and a
// thread that waits for one of those may hold the interpreter's.
void PinnedCache::free_block(Block* block) {
  const std::lock_guard lock(mutex_);
  given_up_.push_back(block->ptr_);
}

void PinnedCache::free_given_up() {
  std::vector<void*> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(given_up_);
  }
  for (void* const block : blocks) {
    const auto time = timed([&] { OPENREG_CHECK_WAIT(orFreeHost(block)); });
    const std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(time);
  }
}
// [/host-allocator-free]

std::pair<void*, void*> PinnedCache::allocate(size_t bytes) {
  check_allocator_options();
  const auto result = CachingHostAllocatorImpl::allocate(bytes);
  free_given_up();
  return result;
}

void PinnedCache::free(void* block) {
  CachingHostAllocatorImpl::free(block);
  free_given_up();
}

void PinnedCache::empty_cache() {
  CachingHostAllocatorImpl::empty_cache();
  free_given_up();
}

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

void check_allocator_options() {
  try {
    c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
  } catch (const std::logic_error& error) {
    // PyTorch reads numbers by functions that say no more than their name.
    TORCH_CHECK_VALUE(
        false,
        "A number in PYTORCH_ALLOC_CONF cannot be read (",
        error.what(),
        "). Expected option:number, separated by commas, in decimal digits.");
  }
}

at::HostAllocator* host_allocator() {
  return pinned_allocator();
}

// [host-allocator-pinned] Whether an address is anywhere in a pinned block.
bool is_pinned(const void* address) {
  orPointerAttributes attributes{};
  return orPointerGetAttributes(&attributes, address) == orSuccess &&
         attributes.type == orMemoryTypeHost;
}
// [/host-allocator-pinned]

// [host-allocator-register] A second registration, beside the hook.
REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, host_allocator())
// [/host-allocator-register]

}  // namespace openreg
