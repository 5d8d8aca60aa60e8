#include "csrc/runtime/allocator.h"

#include <cstdio>

#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/address.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

// Memory without a pool: each tensor's is allocated by the device and freed
// there. The device waits for its work before it takes memory back, so nobody
// has to remember which streams use it.

namespace openreg {
namespace {

[[noreturn]] void refuse_without_pool(const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "openreg: ",
      what,
      " needs the pool, which this package was built without. Build it "
      "without OPENREG_MINIMAL.");
}

struct DirectAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return device_data_ptr(current_device(), bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &device_free;
  }
  void copy_data(void* dst, const void* src, size_t count) const override {
    const orStream_t stream = current_stream(device_of(dst));
    OPENREG_CHECK_WAIT(
        orMemcpyAsync(dst, src, count, orMemcpyDeviceToDevice, stream));
  }
  bool initialized() override {
    return device_count() > 0;
  }
  void emptyCache(c10::MempoolId_t) override {}  // nothing is kept
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex) override {
    refuse_without_pool("counting memory");
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    refuse_without_pool("counting memory");
  }
  void resetPeakStats(c10::DeviceIndex) override {
    refuse_without_pool("counting memory");
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return device_memory(device);
  }
  void recordStream(const c10::DataPtr&, c10::Stream stream) override {
    handle_of(stream);  // raises for one that is not ours
  }
};

[[noreturn]] void raise_out_of_memory(c10::DeviceIndex device, size_t bytes) {
  const auto [free, total] = device_memory(device);
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "openreg out of memory. Tried to allocate ",
      bytes,
      " bytes on device ",
      static_cast<int>(device),
      ", which has a capacity of ",
      total,
      " bytes, of which ",
      free,
      " are free. Free tensors, use smaller ones or raise "
      "OPENREG_DEVICE_MEMORY.");
}

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, device_allocator());
  return true;
}();

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* const allocator = new DirectAllocator;
  return allocator;
}

// [allocator-direct] Memory comes from the device and goes straight back.
void* device_allocate(c10::DeviceIndex device, size_t bytes) {
  check_device(device);
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  void* address = nullptr;
  const orError_t error = orMalloc(&address, bytes);
  if (error == orErrorMemoryAllocation) {
    raise_out_of_memory(device, bytes);
  }
  if (error != orSuccess) {
    raise_error(error, "orMalloc");
  }
  return address;
}

void device_free(void* address) noexcept {
  if (without_interpreter_lock([&] { return orFree(address); }) != orSuccess) {
    // A destructor cannot raise, but a mistake of ours must not pass unseen.
    std::fprintf(
        stderr,
        "openreg: %p was freed, but no tensor's memory begins there (any more)."
        " Nothing was done.\n",
        address);
  }
}

c10::DataPtr device_data_ptr(c10::DeviceIndex device, size_t bytes) {
  void* const address = device_allocate(device, bytes);
  return {
      address, address, &device_free, c10::Device(c10::kPrivateUse1, device)};
}
// [/allocator-direct]

double memory_fraction(c10::DeviceIndex device) {
  check_device(device);
  return 1;
}

void set_memory_fraction(c10::DeviceIndex, double) {
  refuse_without_pool("a limit of memory");
}

std::vector<c10::CachingDeviceAllocator::SegmentInfo> memory_snapshot(
    c10::DeviceIndex) {
  refuse_without_pool("a list of memory");
}

}  // namespace openreg
