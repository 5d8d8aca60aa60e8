#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include "device/openreg.h"

// The threads of PyTorch's CPU kernels, lent to the device's copy engine.

namespace openreg {
namespace {

// [host-threads-lent] Long copies use the threads that PyTorch's kernels use.
// A worker takes as many as the thread that launched the copy would have taken.
// The loop is an iterator's, which PyTorch has compiled: at::parallel_for is in
// a header, and a plain loop where OpenMP is off, as it is here. The header's
// loop without rows copies pointers in a way that GCC 12 warns of at -O2.
constexpr orHostThreads threads = {
    &at::get_num_threads,
    [](int count, size_t bytes, auto part, const void* args) {
      if (at::get_num_threads() != count) {
        at::set_num_threads(count);
      }
      char first{};  // the others are counted, and never touched
      const auto range =
          at::from_blob(&first, {static_cast<int64_t>(bytes)}, at::kByte);
      at::TensorIterator::borrowing_nullary_op(range).for_each(
          [&](char** data, const int64_t*, int64_t size, int64_t rows) {
            const size_t begin = *data - &first;
            part(args, begin, begin + size * rows);
          });
    }};

[[maybe_unused]] const bool lent = (orSetHostThreads(&threads), true);
// [/host-threads-lent]

}  // namespace
}  // namespace openreg
