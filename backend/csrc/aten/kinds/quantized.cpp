#include <type_traits>

#include <ATen/NativeFunctions.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/copy_ops.h>

#include <c10/core/DeviceGuard.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/core/registry.h"
#include "csrc/aten/forms/boxed.h"
#include "csrc/aten/kinds/parts.h"

namespace openreg {
namespace {

// [quantized-guard] PyTorch's factories allocate on the current device.
// So the device that is asked for becomes the current one for the call.
template <auto factory, typename = decltype(factory)>
struct Guarded;

template <auto factory, typename... Args>
struct Guarded<factory, at::Tensor (*)(Args...)> {
  static at::Tensor call(Args... args) {
    c10::OptionalDeviceGuard guard;
    const auto see = [&](const auto& arg) {
      using Arg = std::remove_cvref_t<decltype(arg)>;
      if constexpr (std::is_same_v<Arg, std::optional<c10::Device>>) {
        guard.reset_device(c10::device_or_default(arg));
      }
    };
    (see(args), ...);
    return factory(args...);
  }
};
// [/quantized-guard]

// Floats are quantized on the way, where the codes are to lie.
at::Tensor copy_from(
    const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(
      dst.is_quantized(),
      "Copying from quantized Tensor to non-quantized Tensor is not allowed, "
      "please use dequantize to get a float Tensor from a quantized Tensor");
  auto to = dst;
  if (!self.is_quantized()) {
    const auto here = self.to(dst.device());
    return dst.is_cpu() ? to.copy_(here)
                        : Boxed<at::_ops::copy_>::call(to, here, false);
  }
  TORCH_CHECK(
      self.qscheme() == dst.qscheme(),
      "Quantized Copy only works with same qscheme");
  TORCH_CHECK(
      self.scalar_type() == dst.scalar_type(),
      "Quantized Copy only works with the same dtype");
  const auto from = codes_of(self);
  TORCH_CHECK_NOT_IMPLEMENTED(
      from.sizes() == codes_of(dst).sizes() || from.sizes() == self.sizes(),
      "openreg: a part of a tensor of dtype ",
      self.scalar_type(),
      " cannot be copied, because its elements share bytes; expected a whole "
      "tensor");
  // [quantized-copy] A copy of the codes brings the quantizer along.
  codes_of(dst).copy_(from, non_blocking);
  const auto move = [&](const at::Tensor& t) { return t.to(dst.device()); };
  at::set_quantizer_(dst, change_quantizer(self.quantizer(), move));
  return dst;
  // [/quantized-copy]
}

// [quantized-to] PyTorch's own `to` loses the device if memory has gaps.
at::Tensor to_copy(
    const at::Tensor& self,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    std::optional<at::MemoryFormat> format) {
  const auto copy = at::native::_to_copy(
      self.is_non_overlapping_and_dense() ? self : self.contiguous(),
      dtype,
      layout,
      device,
      pin_memory,
      non_blocking,
      std::nullopt);
  using enum at::MemoryFormat;
  const auto wanted = format.value_or(Preserve);
  const bool last = wanted == ChannelsLast || wanted == ChannelsLast3d;
  return copy.contiguous(last ? wanted : Contiguous);
}
// [/quantized-to]

// PyTorch's own keeps the key and loses the quantizer, which then is looked for
// where there is none.
at::Tensor view_as_dtype(const at::Tensor& self, at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dtype == self.scalar_type(),
      "openreg: a quantized tensor cannot be viewed as ",
      dtype,
      "; int_repr() gives its codes");
  return at::alias(self);
}

}  // namespace

// [quantized-register] Factories, and functions that read the quantizer.
// PyTorch's own functions serve: they allocate by the device's name, and the
// quantizer is the host's.
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, library) {
  if (full_operator_set()) {
    using namespace at::native;
    library.impl(
        "empty.memory_format", &Guarded<&empty_unknown_quantized>::call);
    library.impl("empty_strided", &empty_strided_unknown_quantized);
    library.impl("empty_like", &empty_like_quantized);
    library.impl("empty_quantized", &empty_quantized);
    library.impl(
        "_empty_affine_quantized", &Guarded<&empty_affine_quantized>::call);
    library.impl(
        "_empty_per_channel_affine_quantized",
        &Guarded<&empty_per_channel_affine_quantized>::call);
    library.impl("set_.source_Storage_storage_offset", &set_storage_quantized_);
    library.impl("qscheme", &qscheme_quant);
    library.impl("q_scale", &q_scale_quant);
    library.impl("q_zero_point", &q_zero_point_quant);
    library.impl("q_per_channel_scales", &q_per_channel_scales);
    library.impl("q_per_channel_zero_points", &q_per_channel_zero_points);
    library.impl("q_per_channel_axis", &q_per_channel_axis);
    library.impl("_copy_from", &copy_from);
    library.impl("_to_copy", &to_copy);
    library.impl("view.dtype", &view_as_dtype);
    register_stream_use(library);
    register_alias_kernels(library, "aten", c10::DispatchKey::QuantizedCPU);
  }
}
// [/quantized-register]

// [quantized-operators] Arithmetic on codes has a namespace of its own.
TORCH_LIBRARY_IMPL(quantized, QuantizedPrivateUse1, library) {
  if (full_operator_set()) {
    register_alias_kernels(
        library, "quantized", c10::DispatchKey::QuantizedCPU);
  }
}

TORCH_LIBRARY_IMPL(quantized, PrivateUse1, library) {
  if (full_operator_set()) {
    register_alias_kernels(library, "quantized", c10::DispatchKey::CPU);
  }
}
// [/quantized-operators]

}  // namespace openreg
