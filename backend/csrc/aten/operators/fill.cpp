#include <algorithm>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill_cpu_dispatch.h>

#include "csrc/aten/core/copy_elements.h"
#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

namespace openreg {
namespace {

// [fill-scalar] A number that does not fit the dtype is refused at the call.
at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  const Call call(self.device().index(), "aten::fill_.Scalar");
  if (!call.runs_inline()) {
    // PyTorch converts more leniently for one element than for several.
    const auto count = std::min<int64_t>(self.numel(), 2);
    at::empty(count, at::TensorOptions(self.scalar_type())).fill_(value);
  }
  self.storage().mutable_data();  // parts it from its lazy clones
  launch_on_aliases(
      call,
      Runs::kQueued,
      [](at::Tensor to, const at::Scalar& number) {
        at::cpu::fill_(to, number);
      },
      self,
      value);
  return self;
}
// [/fill-scalar]

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  if (value.dim() != 0 || self.device() != value.device() ||
      self.is_alias_of(value)) {
    return Boxed<at::_ops::fill__Tensor>::call(self, value);
  }
  at::assert_no_internal_overlap(self);
  self.storage().mutable_data();
  launch_on_aliases(
      {self.device().index(), "aten::fill_.Tensor"},
      queued_if(most_kernels_take(self) && most_kernels_take(value)),
      [](at::Tensor to, const at::Tensor& from) { at::cpu::fill_(to, from); },
      self,
      value);
  return self;
}

// [fill-zero] The copy engine fills dense memory with zeros.
at::Tensor& zero_(at::Tensor& self) {
  if (!most_kernels_take(self) || !self.is_non_overlapping_and_dense()) {
    return fill_scalar(self, 0);
  }
  const auto device = self.device().index();
  OPENREG_CHECK_WAIT(orMemsetAsync(
      self.mutable_data_ptr(), 0, self.nbytes(), current_stream(device)));
  note_use(device, self.storage());
  return self;
}
// [/fill-zero]

}  // namespace

void register_fills(torch::Library& library) {
  library.impl("fill_.Scalar", &fill_scalar);
  library.impl("fill_.Tensor", &fill_tensor);
  library.impl("zero_", &zero_);
}

}  // namespace openreg
