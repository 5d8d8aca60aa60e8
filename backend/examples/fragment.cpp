#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>
#include <torch/library.h>

// An extension that adds an operator to ATen's own namespace.

namespace {

// [fragment-aten] Adds an operator to a namespace that already exists.
TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def("lab_squareplus(Tensor self, float b=4.) -> Tensor");
}

at::Tensor squareplus(const at::Tensor& self, double b) {
  return (self + at::sqrt(self * self + b)) / 2;
}

// For every device, and with the gradients of the operators in it.
TORCH_LIBRARY_IMPL(aten, CompositeImplicitAutograd, library) {
  library.impl("lab_squareplus", &squareplus);
}
// [/fragment-aten]

}  // namespace

// expect: ok
