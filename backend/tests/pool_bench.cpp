// What an allocation from the cache costs: the median of allocate and free
// through PyTorch's own interface, for several sizes, on one thread, and beside
// it what the CPU's allocator takes for the same. The two take turns.
//
// Link it with libtorch_openreg, c10 and torch_cpu; it prints one line a size,
// "<bytes> <nanoseconds> <nanoseconds of the CPU's>".

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace {

constexpr int kSamples = 201;
constexpr int kPairs = 1000;

double nanoseconds(c10::Allocator* allocator, size_t bytes) {
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  for (int pair = 0; pair < kPairs; ++pair) {
    const c10::DataPtr block = allocator->allocate(bytes);
  }
  const std::chrono::duration<double, std::nano> time = clock::now() - start;
  return time.count() / kPairs;
}

double median(std::vector<double> samples) {
  const auto middle = samples.begin() + samples.size() / 2;
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace

int main() {
  auto* const allocator = c10::getDeviceAllocator(c10::kPrivateUse1);
  for (const size_t bytes : {4, 4096, 1 << 20, 3 << 20, 64 << 20}) {
    std::vector<double> device, host;
    for (int sample = 0; sample < kSamples; ++sample) {
      device.push_back(nanoseconds(allocator, bytes));
      host.push_back(nanoseconds(c10::GetCPUAllocator(), bytes));
    }
    std::printf("%zu %.1f %.1f\n", bytes, median(device), median(host));
  }
}
