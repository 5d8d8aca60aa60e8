#pragma once

#include <cmath>
#include <type_traits>

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/aten/forms/alias.h"
#include "csrc/runtime/allocator.h"

// PyTorch's structured kernels come in two halves: `meta` checks the arguments
// and says what the result looks like, `impl` computes it. The first half runs
// on device tensors as they are, on the calling thread; so shapes are known,
// memory is allocated and errors are raised before anything is queued.

namespace openreg {

// An uninitialized result, as a structured kernel describes it: no strides
// mean those of the memory format.
inline at::Tensor make_result(
    at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options) {
  const c10::DeviceGuard guard(options.device());
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  const auto dtype = options.dtype().toScalarType();
  return strides.empty() ? at::detail::empty_generic(
                               sizes,
                               device_allocator(),
                               keys,
                               dtype,
                               options.memory_format_opt())
                         : at::detail::empty_strided_generic(
                               sizes, strides, device_allocator(), keys, dtype);
}

// [structured-functional] A structured kernel that makes its result itself.
template <typename Kernel>
struct Functional final : Kernel {
  at::Tensor output;

  const at::Tensor& maybe_get_output(int64_t) override {
    return output;
  }
  void set_output_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    output = make_result(sizes, strides, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Kernel>) {
      Kernel::set_output_raw_strided(index, sizes, strides, options);
    }
  }
  void set_output_raw_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    set_output_strided(index, sizes, strides, options);
  }
};
// [/structured-functional]

// [structured-sure] What `meta` leaves to `impl` to check.
// A CPU kernel looks at the dtype when it runs. These are the dtypes that all
// of them have code for.
inline bool is_usual(c10::ScalarType type) {
  using enum c10::ScalarType;
  return (type >= Byte && type <= Double) || type == BFloat16 ||
         type == ComplexFloat || type == ComplexDouble;
}
inline bool is_usual(const at::Tensor& tensor) {
  return is_usual(tensor.scalar_type());
}
inline bool is_usual_or_bool(const at::Tensor& tensor) {
  return is_usual(tensor) || tensor.scalar_type() == at::kBool;
}

// Whether a number converts to every usual dtype, or to one with fractions.
inline bool converts(const at::Scalar& number, c10::ScalarType type) {
  constexpr int64_t least_maximum = 127;
  if (number.isIntegral(/*includeBool=*/true)) {
    const auto value = number.toLong();
    return value >= 0 && value <= least_maximum;
  }
  return number.isFloatingPoint() && !at::isIntegralType(type, true) &&
         std::abs(number.toDouble()) <= least_maximum;
}
// [/structured-sure]

// [structured-run] `meta` here, `impl` here or on the stream.
template <typename Kernel, typename... Args>
at::Tensor run_structured(const char* name, bool sure, const Args&... args) {
  const auto device = common_device(args...);
  Functional<Kernel> kernel;
  kernel.meta(args...);
  run_or_queue(
      sure,
      device,
      name,
      [](auto&&... aliases) { Functional<Kernel>().impl(aliases...); },
      args...,
      kernel.output);
  return std::move(kernel.output);
}
// [/structured-run]

}  // namespace openreg
