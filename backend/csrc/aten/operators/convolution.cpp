#include <array>
#include <optional>
#include <tuple>

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

// PyTorch sends the convolutions of a device it does not know to these two.
// Without them every convolution raises "convolution_overrideable not
// implemented".

namespace openreg {
namespace {

std::vector<int64_t> convolution_sizes(
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  return transposed
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
}

// As the compiler's functions take them.
template <typename T>
auto symbolic(T option) {
  if constexpr (std::is_same_v<T, at::IntArrayRef>) {
    return c10::fromIntArrayRefSlow(option);
  } else {
    return option;
  }
}

// [convolution-result] The memory format that the CPU's kernel would use.
template <typename... Options>
at::MemoryFormat convolution_format(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    Options... options) {
  using namespace at::native;
  const auto backend = select_conv_backend(
      input, weight, bias, symbolic(options)..., std::nullopt);
  return _determine_backend_memory_format(input, weight, backend);
}
// [/convolution-result]

// All of conv1d, conv2d, conv3d and their transposes.
template <typename... Options>
at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    Options... options) {
  const Call call(
      common_device(input, weight, bias), "aten::convolution_overrideable");
  const auto type = input.scalar_type();
  const auto& stride = std::get<0>(std::tie(options...));
  const bool cannot_refuse =
      every_kernel_takes(type) && at::isFloatingType(type) &&
      weight.scalar_type() == type &&
      (!bias.has_value() || !bias->defined() || bias->scalar_type() == type) &&
      c10::multiply_integers(stride) != 0;
  if (!cannot_refuse) {
    return launch_on_aliases(
        call, &at::convolution, input, weight, bias, options...);
  }
  const auto sizes = convolution_sizes(input, weight, options...);
  if (call.runs_inline()) {
    // [convolution-forward] On an idle stream, the kernel makes its result.
    const OneResult memory(c10::multiply_integers(sizes) * input.itemsize());
    return launch_on_aliases(
        call, &at::convolution, input, weight, bias, options...);
    // [/convolution-forward]
  }
  const auto format = convolution_format(
      borrow(input), borrow(weight), borrow(bias), options...);
  const auto result =
      make_result(sizes, {}, input.options().memory_format(format));
  // On a worker the kernel's own is host memory, from which it is copied.
  launch_on_aliases(
      call,
      Runs::kQueued,
      [](const at::Tensor& to, const auto&... args) {
        to.copy_(at::convolution(args...));
      },
      result,
      input,
      weight,
      bias,
      options...);
  return result;
}

template <typename... Options>
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& weight,
    Options... options) {
  // A bias has one number for each output channel.
  const std::array<int64_t, 1> bias_size{grad_output.size(1)};
  return at::convolution_backward(
      grad_output,
      input,
      weight,
      at::OptionalIntArrayRef(bias_size),
      options...);
}

}  // namespace

void register_convolution(torch::Library& library) {
  // Stride, padding, dilation, transposed or not, output padding, groups.
  using Sizes = at::IntArrayRef;
  library.impl(
      "convolution_overrideable",
      &convolution<Sizes, Sizes, Sizes, bool, Sizes, int64_t>);
  // The same, and which gradients are asked for.
  using Mask = std::array<bool, 3>;
  register_on_aliases<
      at::_ops::convolution_backward_overrideable,
      &convolution_backward<Sizes, Sizes, Sizes, bool, Sizes, int64_t, Mask>>(
      library);
}

}  // namespace openreg
