#include <ATen/ops/gather_native.h>
#include <ATen/ops/index_select_native.h>
#include <ATen/ops/index_select_ops.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/boxed.h"
#include "csrc/aten/forms/structured.h"

// Two kernels that look at the values of an index. Whether one is in range is
// known only when the kernel runs: the error that comes late.

namespace openreg {
namespace {

at::Tensor gather(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    bool sparse_grad) {
  return run_structured<at::native::structured_gather_out>(
      "aten::gather", is_usual_or_bool(self), self, dim, index, sparse_grad);
}

// What is not plain takes the alias kernel, which words the errors, too.
at::Tensor index_select(
    const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const bool plain =
      self.dim() > 0 && self.numel() > 0 && -self.dim() <= dim &&
      dim < self.dim() && index.dim() == 1 && self.device() == index.device() &&
      (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt);
  if (!plain) {
    return Alias<at::_ops::index_select>::call(self, dim, index);
  }
  // [indexing-select] A shape that this function works out by itself.
  auto sizes = self.sizes().vec();
  sizes[dim < 0 ? dim + self.dim() : dim] = index.size(0);
  auto result = make_result(sizes, {}, self.options());
  run_or_queue(
      is_usual_or_bool(self),
      self.device().index(),
      "aten::index_select",
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
  library.impl("gather", &gather);
  library.impl("index_select", &index_select);
}

}  // namespace openreg
