// What an allocation from the cache costs: the median of allocate and free
// through PyTorch's own interface, for several sizes, on one thread.
//
// Link it with libtorch_openreg, c10 and torch_cpu; it prints one line a size,
// "<bytes> <nanoseconds>".

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

namespace {

constexpr int kSamples = 201;
constexpr int kPairs = 1000;

double nanoseconds(c10::Allocator* allocator, size_t bytes) {
  using clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int sample = 0; sample < kSamples; ++sample) {
    const auto start = clock::now();
    for (int pair = 0; pair < kPairs; ++pair) {
      const c10::DataPtr block = allocator->allocate(bytes);
    }
    const std::chrono::duration<double, std::nano> time = clock::now() - start;
    samples.push_back(time.count() / kPairs);
  }
  std::nth_element(
      samples.begin(), samples.begin() + kSamples / 2, samples.end());
  return samples[kSamples / 2];
}

}  // namespace

int main() {
  auto* const allocator = c10::getDeviceAllocator(c10::kPrivateUse1);
  for (const size_t bytes : {4, 4096, 1 << 20, 3 << 20, 64 << 20}) {
    std::printf("%zu %.1f\n", bytes, nanoseconds(allocator, bytes));
  }
}
