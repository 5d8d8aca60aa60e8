#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/abs_cpu_dispatch.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/structured.h"

// Operators that ATen does not have, in a namespace of their own. What a
// program calls is torch.ops.openreg; torch_openreg/ops.py says in Python what
// their results look like.

namespace openreg {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [custom-schema] The schemas, for every device.
TORCH_LIBRARY(openreg, library) {
  library.def("custom_abs(Tensor self) -> Tensor");
  library.def("swiglu(Tensor x, Tensor gate) -> Tensor");
  library.def("custom_autograd_fn_aliasing(Tensor(a) self) -> Tensor(a)");
  library.def("custom_autograd_fn_returns_self(Tensor(a) self) -> Tensor(a)");
}
// [/custom-schema]

// [custom-abs] A kernel: make the result here, fill it in the stream's order.
Tensor custom_abs(const Tensor& self) {
  auto result = at::empty_like(
      self, at::TensorOptions(c10::toRealValueType(self.scalar_type())));
  run_or_queue(
      is_usual(self),
      self.device().index(),
      "openreg::custom_abs",
      [](const Tensor& from, Tensor to) { at::cpu::abs_out(to, from); },
      self,
      result);
  return result;
}
// [/custom-abs]

// [custom-swiglu] A kernel of two tensors checks that they go together.
Tensor swiglu(const Tensor& x, const Tensor& gate) {
  std::optional<c10::Device> device;
  c10::impl::check_and_update_common_device(device, x, "swiglu", "x");
  c10::impl::check_and_update_common_device(device, gate, "swiglu", "gate");
  TORCH_CHECK(
      x.sizes() == gate.sizes() && x.scalar_type() == gate.scalar_type() &&
          x.is_floating_point(),
      "swiglu: expected x and gate of one shape and one floating point dtype, "
      "but got ",
      x.scalar_type(),
      x.sizes(),
      " and ",
      gate.scalar_type(),
      gate.sizes());
  // [/custom-swiglu]
  auto result = at::empty_like(x);
  run_or_queue(
      is_usual(x),
      device->index(),
      "openreg::swiglu",
      [](const Tensor& value, const Tensor& gating, Tensor to) {
        at::cpu::silu_out(to, gating);
        at::_ops::mul_out::call(value, to, to);
      },
      x,
      gate,
      result);
  return result;
}

struct SwiGLU final : torch::autograd::Function<SwiGLU> {
  static Tensor forward(
      AutogradContext* context, const Tensor& x, const Tensor& gate) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("openreg::swiglu", "")
                               .typed<decltype(swiglu)>();
    context->save_for_backward({x, gate});
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, gate);
  }

  // [custom-swiglu-backward] The formula is made of operators that have one.
  static variable_list backward(
      AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &gate = saved[1], &gradient = gradients[0];
    const auto sigmoid = at::sigmoid(gate);
    Tensor of_x, of_gate;
    if (context->needs_input_grad(0)) {
      of_x = gradient * gate * sigmoid;
    }
    if (context->needs_input_grad(1)) {
      of_gate = gradient * x * sigmoid * (1 + gate * (1 - sigmoid));
    }
    return {of_x, of_gate};
  }
  // [/custom-swiglu-backward]
};

// [custom-aliasing] Results that are the argument, or share its memory.
// Both halve the gradient, to be seen at work.
Tensor alias(const Tensor& self) {
  return at::alias(self);
}

Tensor same(const Tensor& self) {
  return self;
}

template <auto make>
struct HalvesGradient final : torch::autograd::Function<HalvesGradient<make>> {
  static Tensor forward(AutogradContext*, const Tensor& self) {
    return make(self);
  }
  static variable_list backward(
      AutogradContext*, const variable_list& gradients) {
    return {gradients[0] * 0.5};
  }
};
// [/custom-aliasing]

// [custom-register] Kernels below autograd, and formulas in front of them.
template <typename Function, typename... Arguments>
Tensor apply(Arguments... arguments) {
  return Function::apply(arguments...);
}

TORCH_LIBRARY_IMPL(openreg, PrivateUse1, library) {
  library.impl("custom_abs", &custom_abs);
  library.impl("swiglu", &swiglu);
}

TORCH_LIBRARY_IMPL(openreg, CompositeExplicitAutograd, library) {
  library.impl("custom_autograd_fn_aliasing", &alias);
  library.impl("custom_autograd_fn_returns_self", &alias);
}

TORCH_LIBRARY_IMPL(openreg, AutogradPrivateUse1, library) {
  library.impl("custom_abs", torch::autograd::autogradNotImplementedFallback());
  library.impl("swiglu", &apply<SwiGLU, const Tensor&, const Tensor&>);
  library.impl(
      "custom_autograd_fn_aliasing",
      &apply<HalvesGradient<&alias>, const Tensor&>);
  library.impl(
      "custom_autograd_fn_returns_self",
      &apply<HalvesGradient<&same>, const Tensor&>);
}
// [/custom-register]

}  // namespace
}  // namespace openreg
