#pragma once

#include <cmath>
#include <type_traits>

#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/Operators.h>
#include <ATen/TensorIterator.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/aten/forms/alias.h"
#include "csrc/aten/forms/boxed.h"
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

// [structured-functional] A structured kernel that allocates its result.
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

template <c10::ScalarType... types>
bool is_one_of(c10::ScalarType type) {
  return ((type == types) || ...);
}

// [structured-refuse] Checks that `meta` leaves to `impl`.
// A CPU kernel looks at the dtype when it runs. These are the dtypes that all
// of them have code for; most of them have it for bool as well.
inline bool every_kernel_takes(c10::ScalarType type) {
  using enum c10::ScalarType;
  return is_one_of<Byte, Char, Short, Int, Long, Half, BFloat16, Float, Double>(
             type) ||
         is_one_of<ComplexFloat, ComplexDouble>(type);
}
inline bool every_kernel_takes(const at::Tensor& tensor) {
  return every_kernel_takes(tensor.scalar_type());
}
inline bool most_kernels_take(const at::Tensor& tensor) {
  return every_kernel_takes(tensor) || tensor.scalar_type() == at::kBool;
}

// Whether a number converts to `type`, one that every kernel takes.
inline bool converts(const at::Scalar& number, c10::ScalarType type) {
  constexpr int64_t least_maximum = 127;
  if (number.isIntegral(/*includeBool=*/true)) {
    const auto value = number.toLong();
    return value >= 0 && value <= least_maximum;
  }
  return number.isFloatingPoint() && !at::isIntegralType(type, true) &&
         std::abs(number.toDouble()) <= least_maximum;
}
// [/structured-refuse]

template <
    typename Op,
    typename Kernel,
    auto cannot_refuse,
    typename Signature = typename Op::schema>
struct Structured;

// [structured-launch] `meta` runs in the call, `impl` at once or queued.
// Calls that `impl` might refuse, or lacks code for, take the boxed kernel.
template <typename Op, typename Kernel, auto cannot_refuse, typename... Args>
struct Structured<Op, Kernel, cannot_refuse, at::Tensor(Args...)> {
  static at::Tensor call(Args... args) {
    if (!cannot_refuse(args...)) {
      return Boxed<Op>::call(args...);
    }
    const Call call(common_device(args...), full_name<Op>);
    Functional<Kernel> kernel;
    kernel.meta(args...);
    launch_on_aliases(
        call,
        Runs::kQueued,
        [](auto&&... aliases) { Functional<Kernel>().impl(aliases...); },
        args...,
        kernel.output);
    return std::move(kernel.output);
  }
};
// [/structured-launch]

// Registers `Op`. `cannot_refuse` gets its arguments.
template <typename Op, typename Kernel, auto cannot_refuse>
void register_structured(torch::Library& library) {
  library.impl(
      std::string(short_name<Op>).c_str(),
      &Structured<Op, Kernel, cannot_refuse>::call);
}

}  // namespace openreg
