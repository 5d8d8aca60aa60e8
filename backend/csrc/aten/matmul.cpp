#include <ATen/ops/addmm_native.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/mm_native.h>

#include "csrc/aten/kernels.h"
#include "csrc/aten/structured.h"

namespace openreg {
namespace {

// [matmul-kernels] The three products that every larger one is made of.
at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  return run_structured<at::native::structured_mm_out_cpu>("mm", self, mat2);
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  return run_structured<at::native::structured_bmm_out_cpu>("bmm", self, mat2);
}

at::Tensor addmm(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  return run_structured<at::native::structured_addmm_out_cpu>(
      "addmm", self, mat1, mat2, beta, alpha);
}
// [/matmul-kernels]

}  // namespace

void register_matmul(const Registrar& add) {
  add("mm", &mm);
  add("bmm", &bmm);
  add("addmm", &addmm);
}

}  // namespace openreg
