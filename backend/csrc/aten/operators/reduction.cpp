#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_native.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/sum_ops.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/boxed.h"
#include "csrc/aten/forms/structured.h"

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
  if (!is_usual_or_bool(self) || !is_usual(dtype.value_or(at::kFloat))) {
    return Alias<at::_ops::sum_dim_IntList>::call(self, dim, keepdim, dtype);
  }
  return run_structured<at::native::structured_sum_out>(
      "aten::sum.dim_IntList", /*sure=*/true, self, dim, keepdim, dtype);
}

// [reduction-nansum] The CPU's kernel takes no complex numbers, its sum does.
// Both have the same arguments.
void nansum(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& value = (*stack)[stack->size() - op.schema().arguments().size()];
  const at::Tensor self = value.toTensor();
  if (!self.is_complex()) {
    return alias_kernel(op, stack);
  }
  value = self.masked_fill(self.isnan(), 0);
  const bool out = op.schema().overload_name() == "out";
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("aten::sum", out ? "IntList_out" : "dim_IntList")
      .callBoxed(stack);
}
// [/reduction-nansum]

at::Tensor softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  return run_structured<at::native::structured_softmax_cpu_out>(
      "aten::_softmax", has_fractions(self), self, dim, half_to_float);
}

at::Tensor log_softmax(
    const at::Tensor& self, int64_t dim, bool half_to_float) {
  return run_structured<at::native::structured_log_softmax_cpu_out>(
      "aten::_log_softmax", has_fractions(self), self, dim, half_to_float);
}

}  // namespace

void register_reductions(torch::Library& library) {
  library.impl("sum.dim_IntList", &sum);
  for (const auto* const name : {"nansum", "nansum.out"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&nansum>());
  }
  library.impl("_softmax", &softmax);
  library.impl("_log_softmax", &log_softmax);
}

}  // namespace openreg
