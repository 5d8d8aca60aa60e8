#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/neg.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

// Operators that show what autograd makes of them: two that share memory with
// their argument, and one that has no formula on purpose.

namespace {

// [gradients-aliasing] Results that are the argument, or share its memory.
// Both halve the gradient, so that a test can see them at work.
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
// [/gradients-aliasing]

// [gradients-register] Kernels for all devices, formulas for one.
TORCH_LIBRARY(toy_gradients, library) {
  library.def("aliasing(Tensor(a) self) -> Tensor(a)");
  library.def("returns_self(Tensor(a) self) -> Tensor(a)");
  library.def("negated(Tensor self) -> Tensor");
}

TORCH_LIBRARY_IMPL(toy_gradients, CompositeExplicitAutograd, library) {
  library.impl("aliasing", &alias);
  library.impl("returns_self", &alias);
  library.impl("negated", [](const Tensor& self) { return at::neg(self); });
}

TORCH_LIBRARY_IMPL(toy_gradients, AutogradPrivateUse1, library) {
  library.impl("aliasing", [](const Tensor& self) {
    return HalvesGradient<&alias>::apply(self);
  });
  library.impl("returns_self", [](const Tensor& self) {
    return HalvesGradient<&same>::apply(self);
  });
  library.impl("negated", torch::autograd::autogradNotImplementedFallback());
}
// [/gradients-register]

}  // namespace

// expect: ok
