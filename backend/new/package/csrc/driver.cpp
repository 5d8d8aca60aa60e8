#include "device/openreg.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

// A first implementation on host memory: two devices of 1 GiB, so that all else
// can be built and tested before yours is there. Replace the whole file.

namespace {

constexpr int device_count = 2;
constexpr size_t capacity = size_t{1} << 30;

struct Block {
  size_t bytes;
  int device;
};

struct State {
  std::mutex mutex;
  std::map<uintptr_t, Block> blocks;
  size_t used[device_count] = {};
};

// Leaked on purpose: tensors may be freed after static destructors have run.
State& state() {
  static auto* const instance = new State;
  return *instance;
}

thread_local int current = 0;

// Whether a range lies in one block; the mutex is held.
bool in_a_block(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto after = state().blocks.upper_bound(begin);
  if (after == state().blocks.begin()) {
    return false;
  }
  const auto& [start, block] = *std::prev(after);
  const size_t offset = begin - start;
  return offset <= block.bytes && bytes <= block.bytes - offset;
}

}  // namespace

const char* drvGetErrorName(drvError_t error) {
  switch (error) {
    case drvSuccess:
      return "drvSuccess";
    case drvErrorInvalidValue:
      return "drvErrorInvalidValue";
    case drvErrorInvalidDevice:
      return "drvErrorInvalidDevice";
    case drvErrorMemoryAllocation:
      return "drvErrorMemoryAllocation";
  }
  return "unknown";
}

const char* drvGetErrorString(drvError_t error) {
  switch (error) {
    case drvSuccess:
      return "no error";
    case drvErrorInvalidValue:
      return "an argument means nothing, or a range leaves its block";
    case drvErrorInvalidDevice:
      return "there is no such device";
    case drvErrorMemoryAllocation:
      return "the device is full";
  }
  return "an error that this driver does not know";
}

drvError_t drvGetDeviceCount(int* count) {
  *count = device_count;
  return drvSuccess;
}

drvError_t drvGetDevice(int* device) {
  *device = current;
  return drvSuccess;
}

drvError_t drvSetDevice(int device) {
  if (device < 0 || device >= device_count) {
    return drvErrorInvalidDevice;
  }
  current = device;
  return drvSuccess;
}

drvError_t drvDeviceSynchronize() {
  return drvSuccess;  // every call returns when its work is done
}

drvError_t drvMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard lock(state().mutex);
  *total = capacity;
  *free = capacity - state().used[current];
  return drvSuccess;
}

drvError_t drvMalloc(void** address, size_t bytes) {
  *address = nullptr;
  if (bytes == 0) {
    return drvSuccess;
  }
  std::lock_guard lock(state().mutex);
  size_t& used = state().used[current];
  if (bytes > capacity - used) {
    return drvErrorMemoryAllocation;
  }
  void* const block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (block == nullptr) {
    return drvErrorMemoryAllocation;
  }
  used += bytes;
  state().blocks[reinterpret_cast<uintptr_t>(block)] = {bytes, current};
  *address = block;
  return drvSuccess;
}

drvError_t drvFree(void* address) {
  if (address == nullptr) {
    return drvSuccess;
  }
  std::lock_guard lock(state().mutex);
  auto& blocks = state().blocks;
  const auto found = blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks.end()) {
    return drvErrorInvalidValue;
  }
  state().used[found->second.device] -= found->second.bytes;
  blocks.erase(found);
  std::free(address);
  return drvSuccess;
}

drvError_t drvMemcpy(
    void* dst, const void* src, size_t bytes, drvMemcpyKind kind) {
  if (bytes == 0) {
    return drvSuccess;
  }
  std::lock_guard lock(state().mutex);
  if ((kind != drvMemcpyHostToDevice && !in_a_block(src, bytes)) ||
      (kind != drvMemcpyDeviceToHost && !in_a_block(dst, bytes))) {
    return drvErrorInvalidValue;
  }
  std::memmove(dst, src, bytes);
  return drvSuccess;
}
