#include <array>
#include <optional>
#include <tuple>

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/kernels.h"

// PyTorch sends the convolutions of a device it does not know to these two.
// Without them every convolution raises "convolution_overrideable not
// implemented".

namespace openreg {
namespace {

// [convolution-forward] All of conv1d, conv2d, conv3d and their transposes.
at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  CommonDevice common;
  common.add(input);
  common.add(weight);
  common.add(bias.value_or(at::Tensor()));
  return run_on_aliases("convolution", common.index(), [&](auto&& alias) {
    return at::convolution(
        alias(input),
        alias(weight),
        bias.has_value() ? std::optional(alias(*bias)) : std::nullopt,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups);
  });
}
// [/convolution-forward]

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  CommonDevice common;
  common.add(grad_output);
  common.add(input);
  common.add(weight);
  // A bias has one number for each output channel.
  const std::array<int64_t, 1> bias_size{grad_output.size(1)};
  return run_on_aliases(
      "convolution_backward", common.index(), [&](auto&& alias) {
        return at::convolution_backward(
            alias(grad_output),
            alias(input),
            alias(weight),
            at::OptionalIntArrayRef(bias_size),
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            output_mask);
      });
}

}  // namespace

void register_convolution(const Registrar& add) {
  add("convolution_overrideable", &convolution);
  add("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace openreg
