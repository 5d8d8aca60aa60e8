#include <ATen/Parallel.h>

#include "device/openreg.h"

// The threads of PyTorch's CPU kernels, lent to the device's copy engine.

namespace openreg {
namespace {

// [host-threads-lent] Long copies use the threads that PyTorch's kernels use.
// A worker takes as many as the thread that launched the copy would have taken.
constexpr orHostThreads threads = {
    &at::get_num_threads,
    [](int count, size_t bytes, auto part, const void* args) {
      if (at::get_num_threads() != count) {
        at::set_num_threads(count);
      }
      at::parallel_for(0, bytes, 1, [&](int64_t begin, int64_t end) {
        part(args, begin, end);
      });
    }};

[[maybe_unused]] const bool lent = (orSetHostThreads(&threads), true);
// [/host-threads-lent]

}  // namespace
}  // namespace openreg
