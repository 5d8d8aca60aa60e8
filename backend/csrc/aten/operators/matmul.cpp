#include <ATen/ExpandUtils.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

namespace openreg {
namespace {

bool match(const at::Tensor& a, const at::Tensor& b) {
  return every_kernel_takes(a) && a.scalar_type() == b.scalar_type();
}

bool fit_together(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  const auto type = self.scalar_type();
  return match(mat1, mat2) && match(mat1, self) && converts(beta, type) &&
         converts(alpha, type) && mat1.dim() == 2 && mat2.dim() == 2 &&
         at::is_expandable_to(self.sizes(), {mat1.size(0), mat2.size(1)});
}

}  // namespace

// [matmul-register] Registering a matrix product takes one line.
// A call that `impl` might refuse takes its turn, so that it fails at the call.
void register_matmul(torch::Library& library) {
  using namespace at::native;
  namespace op = at::_ops;
  register_structured<op::mm, structured_mm_out_cpu, match>(library);
  register_structured<op::bmm, structured_bmm_out_cpu, match>(library);
  register_structured<op::addmm, structured_addmm_out_cpu, fit_together>(
      library);
}
// [/matmul-register]

}  // namespace openreg
