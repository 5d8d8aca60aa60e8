#include "csrc/aten/core/copy_elements.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

// A copy that converts or moves strided elements, by way of the host: the
// device moves bytes, and PyTorch's CPU does the rest. It is slow, and what a
// kernel of your own is to replace.

namespace openreg {
namespace {

at::TensorOptions on_host(const at::Tensor& tensor) {
  return tensor.options().device(c10::kCPU);
}

// The host's tensor stands for conjugates or negatives where the device's does.
at::Tensor marked_as(const at::Tensor& host, const at::Tensor& device) {
  host._set_conj(device.is_conj());
  host._set_neg(device.is_neg());
  return host;
}

// [copy-elements-host] Elements are read in one piece, but written one by one.
// The piece reaches from the first element in memory to the last. What lies
// between those that are written may be written by others meanwhile.
at::Tensor read(const at::Tensor& src) {
  const auto count = static_cast<int64_t>(
      at::detail::computeStorageNbytes(src.sizes(), src.strides(), 1));
  const auto piece = at::empty(count, on_host(src));
  copy_bytes(src.as_strided(count, 1), piece, /*non_blocking=*/false);
  return marked_as(piece.as_strided(src.sizes(), src.strides(), 0), src);
}

void write(const at::Tensor& values, const at::Tensor& dst) {
  if (dst.is_non_overlapping_and_dense()) {
    const auto piece =
        at::empty_strided(dst.sizes(), dst.strides(), on_host(dst));
    marked_as(piece, dst).copy_(values);
    copy_bytes(piece, dst, /*non_blocking=*/false);
  } else {
    for (int64_t i = 0; i < dst.size(0); ++i) {
      write(values.select(0, i), dst.select(0, i));
    }
  }
}
// [/copy-elements-host]

}  // namespace

void copy_elements(
    const at::Tensor& src, const at::Tensor& dst, bool /*non_blocking*/) {
  const auto values = src.is_cpu() ? src : read(src);
  if (dst.is_cpu()) {
    dst.copy_(values);
  } else {
    write(at::empty(dst.sizes(), on_host(dst)).copy_(values), dst);
  }
}

}  // namespace openreg
