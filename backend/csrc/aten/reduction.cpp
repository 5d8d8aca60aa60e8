#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_native.h>
#include <ATen/ops/sum_native.h>

#include "csrc/aten/kernels.h"
#include "csrc/aten/structured.h"

namespace openreg {
namespace {

at::Tensor sum(
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    std::optional<at::ScalarType> dtype) {
  return run_structured<at::native::structured_sum_out>(
      "sum", self, dim, keepdim, dtype);
}

at::Tensor softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  return run_structured<at::native::structured_softmax_cpu_out>(
      "softmax", self, dim, half_to_float);
}

at::Tensor log_softmax(
    const at::Tensor& self, int64_t dim, bool half_to_float) {
  return run_structured<at::native::structured_log_softmax_cpu_out>(
      "log_softmax", self, dim, half_to_float);
}

}  // namespace

void register_reductions(const Registrar& add) {
  add("sum.dim_IntList", &sum);
  add("_softmax", &softmax);
  add("_log_softmax", &log_softmax);
}

}  // namespace openreg
