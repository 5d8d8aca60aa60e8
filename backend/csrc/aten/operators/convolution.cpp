#include <array>
#include <optional>
#include <tuple>

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/alias.h"
#include "csrc/aten/forms/structured.h"

// PyTorch sends the convolutions of a device it does not know to these two.
// Without them every convolution raises "convolution_overrideable not
// implemented".

namespace openreg {
namespace {

// Channels come last where an argument has them last, as on the CPU.
at::Tensor make_convolution_result(
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  const auto sizes =
      transposed
          ? at::native::conv_input_size(
                input.sizes(),
                weight.sizes(),
                padding,
                output_padding,
                stride,
                dilation,
                groups)
          : at::native::conv_output_size(
                input.sizes(), weight.sizes(), padding, stride, dilation);
  // [convolution-result] What the result looks like, before there is one.
  auto format = input.suggest_memory_format();
  if (format == at::MemoryFormat::Contiguous) {
    format = weight.suggest_memory_format();
  }
  return make_result(sizes, {}, input.options().memory_format(format));
  // [/convolution-result]
}

// On a worker that is host memory, from which it is copied.
void convolve_into(
    const at::Tensor& result,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  result.copy_(
      at::convolution(
          input,
          weight,
          bias,
          stride,
          padding,
          dilation,
          transposed,
          output_padding,
          groups));
}

// All of conv1d, conv2d, conv3d and their transposes.
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
  const auto device = common_device(input, weight, bias);
  const auto type = input.scalar_type();
  const bool sure =
      is_usual(type) && at::isFloatingType(type) &&
      weight.scalar_type() == type &&
      (!bias.has_value() || !bias->defined() || bias->scalar_type() == type);
  if (sure && !runs_inline(device)) {
    const auto result = make_convolution_result(
        input,
        weight,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups);
    run_or_queue(
        sure,
        device,
        "aten::convolution_overrideable",
        &convolve_into,
        result,
        input,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups);
    return result;
  }
  // [convolution-forward] On an idle stream the CPU's kernel makes its result.
  constexpr auto name = "aten::convolution_overrideable";
  return run_on_aliases(name, device, [&](auto&& alias) {
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
  // [/convolution-forward]
}

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
  const auto device = common_device(grad_output, input, weight);
  // A bias has one number for each output channel.
  const std::array<int64_t, 1> bias_size{grad_output.size(1)};
  constexpr auto name = "aten::convolution_backward_overrideable";
  return run_on_aliases(name, device, [&](auto&& alias) {
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

void register_convolution(torch::Library& library) {
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace openreg
