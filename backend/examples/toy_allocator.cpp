#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

// A caching allocator for a toy device with one stream.

namespace {

// [toy-allocator-cache] A freed block goes onto a list for its size.
struct Block {
  void* address;
  size_t bytes;
};
std::mutex mutex;  // any thread may free
std::map<size_t, std::vector<Block*>> kept;

Block* take(size_t bytes) {
  const std::lock_guard lock(mutex);
  auto& list = kept[bytes];
  if (list.empty()) {
    void* const address = std::malloc(bytes);  // here: ask your driver
    TORCH_CHECK_WITH(OutOfMemoryError, address, "the toy is full");
    return new Block{address, bytes};
  }
  Block* const block = list.back();
  list.pop_back();
  return block;
}

void give_back(void* context) {
  const std::lock_guard lock(mutex);
  auto* const block = static_cast<Block*>(context);
  kept[block->bytes].push_back(block);
}
// [/toy-allocator-cache]

// [toy-allocator-impl] The smallest allocator that PyTorch accepts.
constexpr auto toy = c10::DeviceType::PrivateUse1;

struct ToyAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device here(toy, 0);
    if (bytes == 0) {
      return {nullptr, nullptr, &give_back, here};
    }
    Block* const block = take(bytes);
    return {block->address, block, &give_back, here};
  }
  void copy_data(void* dst, const void* src, size_t bytes) const override {
    default_copy_data(dst, src, bytes);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex /*device*/) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "the toy does not count");
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
};

const bool registered = [] {
  c10::SetAllocator(toy, new ToyAllocator);  // tensors outlive statics
  return true;
}();
// [/toy-allocator-impl]

// What does nothing, and must do it without an error.
void rest() {
  auto* const allocator = c10::getDeviceAllocator(toy);
  TORCH_CHECK(allocator->initialized());
  const c10::DataPtr none = allocator->clone(nullptr, 0);
  const c10::Device device(toy, 0);
  allocator->recordStream(none, c10::Stream(c10::Stream::DEFAULT, device));
  allocator->emptyCache();
  allocator->resetAccumulatedStats(0);
  allocator->resetPeakStats(0);
}

}  // namespace

// [toy-allocator-main] As PyTorch uses it.
int main() {
  c10::Allocator* const allocator = c10::GetAllocator(toy);
  c10::DataPtr data = allocator->allocate(1000);
  const void* const first = data.get();
  data.clear();
  data = allocator->allocate(1000);
  std::cout << std::boolalpha << "it came back: " << (data.get() == first);
  data.clear();
  data = allocator->allocate(999);
  std::cout << "\none byte less, too: " << (data.get() == first);
  data = allocator->allocate(0);
  std::cout << "\n0 bytes on " << data.device() << ": " << data.get() << '\n';
  try {
    rest();
    c10::getDeviceAllocator(toy)->getDeviceStats(0);
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << '\n';
  }
}
// [/toy-allocator-main]

// expect: ok
