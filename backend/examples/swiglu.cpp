#include <cmath>
#include <optional>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <openreg/runtime/address.h>
#include <openreg/runtime/launch.h>

// An operator with a kernel of its own, x * silu(gate), from a library that
// uses the backend's headers.

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [swiglu-check] A kernel of two tensors checks that they match.
void check(const Tensor& x, const Tensor& gate) {
  std::optional<c10::Device> device;
  c10::impl::check_and_update_common_device(device, x, "swiglu", "x");
  c10::impl::check_and_update_common_device(device, gate, "swiglu", "gate");
  TORCH_CHECK(
      x.sym_sizes() == gate.sym_sizes() &&
          x.scalar_type() == gate.scalar_type() && x.is_floating_point(),
      "swiglu: expected x and gate of one shape and one floating point dtype, "
      "but got ",
      x.scalar_type(),
      x.sym_sizes(),
      " and ",
      gate.scalar_type(),
      gate.sym_sizes());
}

Tensor make_result(const Tensor& x) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}
// [/swiglu-check]

// [swiglu-kernel] Launches the loop, on kernel addresses and in stream order.
template <typename T>
void launch_loop(const Tensor& x, const Tensor& gate, const Tensor& to) {
  const T* const values = openreg::to_kernel(x.const_data_ptr<T>());
  const T* const gates = openreg::to_kernel(gate.const_data_ptr<T>());
  T* const results = openreg::to_kernel(to.mutable_data_ptr<T>());
  const openreg::Call call(to.device().index(), "vendor::swiglu");
  openreg::launch(call, openreg::Runs::kQueued, [=, count = to.numel()] {
    using Wide = at::opmath_type<T>;  // float for the narrower ones
    for (int64_t i = 0; i < count; ++i) {
      const auto g = static_cast<Wide>(gates[i]);
      results[i] = static_cast<T>(values[i] * g / (1 + std::exp(-g)));
    }
  });
}

Tensor swiglu(const Tensor& x, const Tensor& gate) {
  check(x, gate);
  auto result = make_result(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "swiglu", [&] {
        launch_loop<scalar_t>(x.contiguous(), gate.contiguous(), result);
      });
  return result;
}
// [/swiglu-kernel]

struct SwiGLU final : torch::autograd::Function<SwiGLU> {
  static Tensor forward(
      AutogradContext* context, const Tensor& x, const Tensor& gate) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("vendor::swiglu", "")
                               .typed<decltype(swiglu)>();
    context->save_for_backward({x, gate});
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, gate);
  }

  // [swiglu-backward] The formula calls operators that are differentiable.
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
  // [/swiglu-backward]
};

// [swiglu-register] Schema, kernel, fake kernel and autograd formula.
TORCH_LIBRARY(vendor, library) {
  library.def("swiglu(Tensor x, Tensor gate) -> Tensor");
}

TORCH_LIBRARY_IMPL(vendor, PrivateUse1, library) {
  library.impl("swiglu", &swiglu);
}

TORCH_LIBRARY_IMPL(vendor, Meta, library) {
  library.impl("swiglu", [](const Tensor& x, const Tensor& gate) {
    check(x, gate);
    return make_result(x);
  });
}

TORCH_LIBRARY_IMPL(vendor, AutogradPrivateUse1, library) {
  library.impl("swiglu", [](const Tensor& x, const Tensor& gate) {
    return SwiGLU::apply(x, gate);
  });
}
// [/swiglu-register]

}  // namespace

// expect: ok
