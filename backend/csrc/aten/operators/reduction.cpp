#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

namespace openreg {
namespace {

bool has_fractions(const at::Tensor& self, int64_t, bool) {
  return every_kernel_takes(self) && self.is_floating_point();
}

bool takes_sum(
    const at::Tensor& self,
    at::OptionalIntArrayRef,
    bool,
    std::optional<at::ScalarType> dtype) {
  return most_kernels_take(self) &&
         every_kernel_takes(dtype.value_or(at::kFloat));
}

// [reduction-nansum] The CPU has no complex nansum, so sum computes it.
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

}  // namespace

void register_reductions(torch::Library& library) {
  for (const auto* const name : {"nansum", "nansum.out"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&nansum>());
  }
  using namespace at::native;
  namespace op = at::_ops;
  register_structured<op::sum_dim_IntList, structured_sum_out, takes_sum>(
      library);
  register_structured<op::_softmax, structured_softmax_cpu_out, has_fractions>(
      library);
  register_structured<
      op::_log_softmax,
      structured_log_softmax_cpu_out,
      has_fractions>(library);
}

}  // namespace openreg
