#include <ATen/ExpandUtils.h>
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/mm_native.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

namespace openreg {
namespace {

bool match(const at::Tensor& a, const at::Tensor& b) {
  return is_usual(a) && a.scalar_type() == b.scalar_type();
}

// [matmul-kernels] A matrix product is one line.
// What `meta` does not check takes its turn, so that it is refused at the call.
at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  return run_structured<at::native::structured_mm_out_cpu>(
      "aten::mm", match(self, mat2), self, mat2);
}
// [/matmul-kernels]

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  return run_structured<at::native::structured_bmm_out_cpu>(
      "aten::bmm", match(self, mat2), self, mat2);
}

at::Tensor addmm(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  const auto type = self.scalar_type();
  const bool sure =
      match(mat1, mat2) && match(mat1, self) && converts(beta, type) &&
      converts(alpha, type) && mat1.dim() == 2 && mat2.dim() == 2 &&
      at::is_expandable_to(self.sizes(), {mat1.size(0), mat2.size(1)});
  return run_structured<at::native::structured_addmm_out_cpu>(
      "aten::addmm", sure, self, mat1, mat2, beta, alpha);
}

}  // namespace

void register_matmul(torch::Library& library) {
  library.impl("mm", &mm);
  library.impl("bmm", &bmm);
  library.impl("addmm", &addmm);
}

}  // namespace openreg
