#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_native.h>
#include <ATen/ops/sum_native.h>

#include "csrc/aten/kernels.h"
#include "csrc/aten/structured.h"

namespace openreg {
namespace {

bool has_fractions(const at::Tensor& tensor) {
  return is_usual(tensor) && tensor.is_floating_point();
}

at::Tensor sum(
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    std::optional<at::ScalarType> dtype) {
  return run_structured<at::native::structured_sum_out>(
      "sum", is_usual_or_bool(self), self, dim, keepdim, dtype);
}

at::Tensor softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  return run_structured<at::native::structured_softmax_cpu_out>(
      "softmax", has_fractions(self), self, dim, half_to_float);
}

at::Tensor log_softmax(
    const at::Tensor& self, int64_t dim, bool half_to_float) {
  return run_structured<at::native::structured_log_softmax_cpu_out>(
      "log_softmax", has_fractions(self), self, dim, half_to_float);
}

}  // namespace

void register_reductions(const Registrar& add) {
  add("sum.dim_IntList", &sum);
  add("_softmax", &softmax);
  add("_log_softmax", &log_softmax);
}

}  // namespace openreg
