#include <optional>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>

#include "csrc/aten/core/kernels.h"

// Dropout without a kernel of its own: an operator that has a generator among
// its arguments draws, and so the device's generator is asked.

namespace openreg {
namespace {

// [random-composed] Dropout composed of an operator that takes a generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(
    const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, at::kBool)};
  }
  auto noise = at::empty_like(input).bernoulli_(1 - p);
  auto mask = noise.to(at::kBool);
  return {input * noise.div_(1 - p), std::move(mask)};
}
// [/random-composed]

}  // namespace

void register_dropout(torch::Library& library) {
  library.impl("native_dropout", &native_dropout);
}

}  // namespace openreg
