#include <optional>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/ones_like.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/alias.h"
#include "csrc/runtime/generator.h"

// Random operators with a generator argument go through the alias kernel, or
// through the fallback. This one has none: its CPU kernel would draw from the
// CPU's generator.

namespace openreg {
namespace {

// [random-dropout] Drawn and scaled as the CPU's dropout does, bit for bit.
std::tuple<at::Tensor, at::Tensor> native_dropout(
    const at::Tensor& input, double p, std::optional<bool> train) {
  const auto device = input.device().index();
  const auto generator = inner_generator(default_generator(device), device);
  const Call call(device, "aten::native_dropout");
  const auto kernel = [generator, p, train](const at::Tensor& x) {
    if (!train.value_or(true)) {
      return std::tuple(x.clone(), at::ones_like(x, at::kBool));
    }
    auto noise = at::empty_like(x).bernoulli_(1 - p, generator);
    const auto mask = noise.to(at::kBool);
    return std::tuple(x * noise.div_(1 - p), mask);
  };
  note_draw(capture_of(call.stream).get(), generator);
  return launch_on_aliases(call, kernel, input);
}
// [/random-dropout]

at::Tensor native_dropout_backward(
    const at::Tensor& grad, const at::Tensor& mask, double scale) {
  // Dividing by 1 - p rounds as the forward pass did.
  const auto noise = mask.to(grad.scalar_type());
  return grad * (scale == 0 ? noise * scale : noise / (1 / scale));
}

}  // namespace

void register_dropout(torch::Library& library) {
  library.impl("native_dropout", &native_dropout);
  register_on_aliases<
      at::_ops::native_dropout_backward,
      &native_dropout_backward>(library);
}

}  // namespace openreg
