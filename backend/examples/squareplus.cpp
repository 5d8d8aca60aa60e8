#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sqrt.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

// The operator of squareplus.py in C++, from outside the backend.

namespace {

// [squareplus-kernels] Schema and kernel; the kernel calls operators of ATen.
using at::Tensor;

TORCH_LIBRARY(toy_cpp, library) {
  library.def("squareplus(Tensor x, float b=4.) -> Tensor");
}

Tensor squareplus(const Tensor& x, double b) {
  TORCH_CHECK(
      x.is_floating_point(),
      "squareplus: expected floats, but got ",
      x.scalar_type());
  return (x * x).add_(b).sqrt_().add_(x).mul_(0.5);
}
// [/squareplus-kernels]

// [squareplus-formula] A tensor is saved, a number is kept in saved_data.
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SquarePlus final : torch::autograd::Function<SquarePlus> {
  static Tensor forward(AutogradContext* context, const Tensor& x, double b) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("toy_cpp::squareplus", "")
                               .typed<decltype(squareplus)>();
    context->save_for_backward({x});
    context->saved_data["b"] = b;
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, b);
  }

  static variable_list backward(
      AutogradContext* context, const variable_list& gradients) {
    const auto x = context->get_saved_variables()[0];
    const auto b = context->saved_data["b"].toDouble();
    return {gradients[0] * (1 + x / at::sqrt(x * x + b)) / 2, Tensor()};
  }
};
// [/squareplus-formula]

// [squareplus-register] Registers each part under its dispatch key.
TORCH_LIBRARY_IMPL(toy_cpp, PrivateUse1, library) {
  library.impl("squareplus", &squareplus);
}

TORCH_LIBRARY_IMPL(toy_cpp, Meta, library) {
  library.impl(
      "squareplus", [](const Tensor& x, double) { return at::empty_like(x); });
}

TORCH_LIBRARY_IMPL(toy_cpp, AutogradPrivateUse1, library) {
  library.impl("squareplus", [](const Tensor& x, double b) {
    return SquarePlus::apply(x, b);
  });
}
// [/squareplus-register]

}  // namespace

// expect: ok
