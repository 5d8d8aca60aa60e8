#include <ATen/EmptyTensor.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sub_ops.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/aten/boxed.h"
#include "csrc/aten/kernels.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/launch.h"

// The shortest way to a CPU kernel, for operators that take a microsecond: no
// alias is made. PyTorch's structured kernel computes shape, strides and dtype
// on the device tensors themselves, then asks its DispatchStub for the kernel
// of the device; ours moves the iterator's addresses and calls the CPU's.

namespace openreg {
namespace {

// [pointwise-stub] What is registered for the device: shift, then the CPU's.
template <auto* stub, typename Function>
struct Shifted;

template <auto* stub, typename... Args>
struct Shifted<stub, void (*)(at::TensorIteratorBase&, Args...)> {
  static void call(at::TensorIteratorBase& iterator, Args... args) {
    for (int i = 0; i < iterator.ntensors(); ++i) {
      void* const address = iterator.data_ptr(i);
      if (is_device_address(address)) {
        iterator.unsafe_replace_operand(i, to_kernel(address));
      }
    }
    launch(iterator.device(0).index(), "pointwise", [&] {
      (*stub)(c10::kCPU, iterator, args...);
    });
  }
};

template <auto* stub>
constexpr auto shifted =
    &Shifted<stub, typename std::remove_pointer_t<decltype(stub)>::FnPtr>::call;
// [/pointwise-stub]

// [pointwise-structured] A structured kernel that makes its output itself.
template <typename Kernel>
struct Functional final : Kernel {
  at::Tensor output;

  const at::Tensor& maybe_get_output(int64_t) override {
    return output;
  }
  void set_output_raw_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    const c10::DeviceGuard guard(options.device());
    constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
    const auto dtype = options.dtype().toScalarType();
    output = strides.empty()
                 ? at::detail::empty_generic(
                       sizes,
                       device_allocator(),
                       keys,
                       dtype,
                       options.memory_format_opt())
                 : at::detail::empty_strided_generic(
                       sizes, strides, device_allocator(), keys, dtype);
    Kernel::set_output_raw_strided(index, sizes, strides, options);
  }
};

template <typename Kernel, typename... Args>
at::Tensor run_structured(const Args&... args) {
  Functional<Kernel> kernel;
  kernel.meta(args...);
  kernel.impl(args..., kernel.output);
  return std::move(kernel.output);
}
// [/pointwise-structured]

// On the device an iterator leaves type promotion to the kernel, and a CPU
// kernel expects it done. So only operands of one dtype come this way.
bool plain(const at::Tensor& self, const at::Tensor& other) {
  return self.device() == other.device() &&
         self.scalar_type() == other.scalar_type();
}

// The alias kernel, called with the operator's C++ signature.
template <typename Op>
using Alias = at::native::call_fallback_fn<&alias_kernel, Op>;

// [pointwise-kernels] The two ways of a binary operator.
at::Tensor add(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return plain(self, other)
             ? run_structured<at::native::structured_ufunc_add_CPU>(
                   self, other, alpha)
             : Alias<at::_ops::add_Tensor>::call(self, other, alpha);
}

at::Tensor sub(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return plain(self, other)
             ? run_structured<at::native::structured_sub_out>(
                   self, other, alpha)
             : Alias<at::_ops::sub_Tensor>::call(self, other, alpha);
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  return plain(self, other)
             ? run_structured<at::native::structured_mul_out>(self, other)
             : Alias<at::_ops::mul_Tensor>::call(self, other);
}
// [/pointwise-kernels]

at::Tensor relu(const at::Tensor& self) {
  return self.is_floating_point()
             ? run_structured<at::native::structured_clamp_min_out>(
                   self, at::Scalar(0))
             : Alias<at::_ops::relu>::call(self);
}

}  // namespace

// [pointwise-register] The fast forms of four operators.
void register_pointwise(const Registrar& add_kernel) {
  add_kernel("add.Tensor", &add);
  add_kernel("sub.Tensor", &sub);
  add_kernel("mul.Tensor", &mul);
  add_kernel("relu", &relu);
}
// [/pointwise-register]

}  // namespace openreg

// [pointwise-dispatch] REGISTER_PRIVATEUSE1_DISPATCH, the macro of this seam.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(add_stub, openreg::shifted<&add_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(mul_stub, openreg::shifted<&mul_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(
    clamp_min_scalar_stub, openreg::shifted<&clamp_min_scalar_stub>)
}  // namespace at::native
// [/pointwise-dispatch]
