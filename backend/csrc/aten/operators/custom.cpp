#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "csrc/aten/forms/structured.h"

// Operators that ATen does not have, in a namespace of their own. What a
// program calls is torch.ops.openreg; torch_openreg/ops.py says in Python what
// their results look like.

namespace openreg {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [custom-swiglu] A kernel of two tensors checks that they go together.
// It makes the result here, and fills it in the stream's order.
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
  auto result = at::empty_like(x);
  launch_on_aliases(
      {device->index(), "openreg::swiglu"},
      queued_if(every_kernel_takes(x)),
      [](const Tensor& value, const Tensor& gating, Tensor to) {
        at::cpu::silu_out(to, gating);
        at::_ops::mul_out::call(value, to, to);
      },
      x,
      gate,
      result);
  return result;
}
// [/custom-swiglu]

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

// [custom-register] Schema, kernel, and the formula in front of it.
TORCH_LIBRARY(openreg, library) {
  library.def("swiglu(Tensor x, Tensor gate) -> Tensor");
}

TORCH_LIBRARY_IMPL(openreg, PrivateUse1, library) {
  library.impl("swiglu", &swiglu);
}

TORCH_LIBRARY_IMPL(openreg, AutogradPrivateUse1, library) {
  library.impl("swiglu", [](const Tensor& x, const Tensor& gate) {
    return SwiGLU::apply(x, gate);
  });
}
// [/custom-register]

}  // namespace
}  // namespace openreg
