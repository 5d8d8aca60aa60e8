#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Scalar.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/kernels.h"

// Every copy with an end on the device. PyTorch's copy_, to() and clone() all
// arrive here.

namespace openreg {
namespace {

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense();
}

// [copy-from] One copy engine call, or a kernel on the device's side.
void copy_bytes(const at::Tensor& src, const at::Tensor& dst) {
  OPENREG_CHECK(orMemcpy(
      dst.mutable_data_ptr(),
      src.const_data_ptr(),
      src.nbytes(),
      orMemcpyDefault));
}

// A copy that converts or moves strided elements is a kernel: ATen's copy
// kernel on aliases. Both sides are where a kernel may look: device memory
// through its alias, host memory as it is.
void copy_elements(
    const at::Tensor& src,
    const at::Tensor& dst,
    bool non_blocking,
    c10::DeviceIndex device) {
  Aliases aliases(device);
  const auto from = aliases.alias(src);
  const auto to = aliases.alias(dst);
  launch(device, "copy", [&] {
    KernelScope scope(device);
    to.copy_(from, non_blocking);
  });
}
// [/copy-from]

at::Tensor copy_from(
    const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (dst.numel() == 0 || self.is_same(dst)) {
    return dst;
  }
  const auto device =
      dst.device().is_privateuseone() ? dst.device() : self.device();
  if (self.sizes() == dst.sizes() && same_layout(self, dst) &&
      !(self.device() == dst.device())) {
    copy_bytes(self, dst);
  } else {
    copy_elements(self, dst, non_blocking, device.index());
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  return copy_from(self, dst, /*non_blocking=*/false);
}

// [copy-item] One element to the host, as item() wants it.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(
      self.numel() == 1,
      "a Tensor with ",
      self.numel(),
      " elements cannot be converted to Scalar");
  const auto device = self.device().index();
  at::Scalar result;
  const void* const source = to_kernel(self.const_data_ptr());
  launch(device, "item", [&] {
    AT_DISPATCH_V2(
        self.scalar_type(),
        "_local_scalar_dense",
        AT_WRAP([&] {
          result = at::Scalar(*static_cast<const scalar_t*>(source));
        }),
        AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
        at::kComplexHalf,
        at::kHalf,
        at::kBool,
        at::kBFloat16,
        AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
        AT_EXPAND(AT_FLOAT8_TYPES));
  });
  return result;
}
// [/copy-item]

}  // namespace

void register_copies(const Registrar& add) {
  add("_copy_from", &copy_from);
  add("_copy_from_and_resize", &copy_from_and_resize);
}

void register_item(const Registrar& add) {
  add("_local_scalar_dense", &local_scalar_dense);
}

// [copy-math-bits] A copy handles conjugate and negative bits itself.
// Without these two lines clone() on such a view recurses until the stack
// overflows: PyTorch would resolve the bit first, by copying.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
// [/copy-math-bits]

}  // namespace openreg
