#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

// Two kernels that look at the values of an index. Whether one is in range is
// known only when the kernel runs: the error that comes late.

namespace openreg {
namespace {

// What is refused takes the boxed kernel, which words the errors.
at::Tensor index_select(
    const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const bool cannot_refuse =
      self.dim() > 0 && self.numel() > 0 && -self.dim() <= dim &&
      dim < self.dim() && index.dim() == 1 && self.device() == index.device() &&
      (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt) &&
      most_kernels_take(self);
  if (!cannot_refuse) {
    return Boxed<at::_ops::index_select>::call(self, dim, index);
  }
  // [indexing-select] The result's shape is computed at the call.
  auto sizes = self.sizes().vec();
  sizes[dim < 0 ? dim + self.dim() : dim] = index.size(0);
  auto result = make_result(sizes, {}, self.options());
  launch_on_aliases(
      {self.device().index(), "aten::index_select"},
      Runs::kQueued,
      [](const at::Tensor& from,
         int64_t along,
         const at::Tensor& which,
         at::Tensor to) {
        at::native::index_select_out_cpu_(from, along, which, to);
      },
      self,
      dim,
      index,
      result);
  return result;
  // [/indexing-select]
}

}  // namespace

void register_indexing(torch::Library& library) {
  register_structured<
      at::_ops::gather,
      at::native::structured_gather_out,
      [](const at::Tensor& self, int64_t, const at::Tensor&, bool) {
        return most_kernels_take(self);
      }>(library);
  library.impl("index_select", &index_select);
}

}  // namespace openreg
