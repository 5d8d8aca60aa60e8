#include <ATen/native/BinaryOps.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sub_ops.h>

#include "csrc/aten/boxed.h"
#include "csrc/aten/kernels.h"
#include "csrc/aten/structured.h"

// The shortest way to a CPU kernel, for operators that take a microsecond: no
// alias is made. PyTorch's structured kernel computes shape, strides and dtype
// on the device tensors themselves, then asks its DispatchStub for the kernel
// of the device; ours moves the iterator's addresses and calls the CPU's. An
// iterator cannot be queued, since it holds the tensors. So with work pending
// the second half is the CPU's operator on aliases instead.

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

// [pointwise-in-place] A structured kernel whose result is given: self, or out=.
template <typename Kernel>
struct Into final : Kernel {
  explicit Into(const at::Tensor& given) : output(given) {}
  const at::Tensor& output;

  const at::Tensor& maybe_get_output(int64_t) override {
    return output;
  }
  void set_output_raw_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    // It warns if it resizes what is not empty. Never so in place.
    if (at::native::resize_output(output, sizes)) {
      if (!strides.empty()) {
        output.as_strided_(sizes, strides);
      } else if (const auto format = options.memory_format_opt()) {
        output.unsafeGetTensorImpl()->empty_tensor_restride(*format);
      }
    }
    Kernel::set_output_raw_strided(index, sizes, strides, options);
  }
};
// [/pointwise-in-place]

// On the device an iterator leaves type promotion to the kernel, and a CPU
// kernel expects it done. So only operands of one dtype can be shifted.
template <typename... Rest>
bool plain(const at::Tensor& self, const at::Tensor& other, const Rest&...) {
  return self.scalar_type() == other.scalar_type() &&
         self.device() == other.device();
}
bool plain(const at::Tensor&, const at::Scalar&) {
  return true;
}

template <typename... Rest>
c10::DeviceIndex device_index(
    const at::Tensor& self, const at::Tensor& other, const Rest&...) {
  return (self.is_privateuseone() ? self : other).device().index();
}
c10::DeviceIndex device_index(const at::Tensor& self, const at::Scalar&) {
  return self.device().index();
}

// Whether the shifted form can serve: only here, and only plain operands.
template <typename... Args>
bool shifts(const Args&... args) {
  return plain(args...) && runs_inline(device_index(args...));
}

// Whether the other form cannot fail: `meta` has checked all but these.
template <typename... Rest>
bool sure(
    const at::Tensor& self, const at::Tensor& other, const Rest&... alpha) {
  return is_usual_or_bool(self) && is_usual_or_bool(other) &&
         (true && ... &&
          (converts(alpha, self.scalar_type()) &&
           converts(alpha, other.scalar_type())));
}
bool sure(const at::Tensor& self, const at::Scalar&) {
  return is_usual(self);
}

// [pointwise-run] First half, then one of the two second halves.
// `second` is the CPU's operator with the result as its last argument.
template <typename Kernel, typename Second, typename... Args>
at::Tensor run(const char* name, Second second, const Args&... args) {
  Functional<Kernel> kernel;
  kernel.meta(args...);
  if (shifts(args...)) {
    kernel.impl(args..., kernel.output);
  } else {
    run_or_queue(
        sure(args...),
        kernel.output.device().index(),
        name,
        second,
        args...,
        kernel.output);
  }
  return std::move(kernel.output);
}

template <typename Kernel, typename Second, typename... Args>
at::Tensor& run_in_place(
    const char* name, Second second, at::Tensor& self, const Args&... args) {
  Into<Kernel> kernel(self);
  kernel.meta(self, args...);
  if (shifts(self, args...)) {
    kernel.impl(self, args..., self);
  } else {
    run_or_queue(
        sure(self, args...),
        self.device().index(),
        name,
        second,
        self,
        args...,
        self);
  }
  return self;
}
// [/pointwise-run]

// [pointwise-out] With out=, shifted or by the alias kernel: it may have to
// convert, and to resize what is not there yet.
template <typename Kernel, typename Op, typename... Rest>
at::Tensor& run_out(
    at::Tensor& out, const at::Tensor& self, const Rest&... rest) {
  if (!plain(self, out) || !shifts(self, rest...)) {
    return Alias<Op>::call(self, rest..., out);
  }
  Into<Kernel> kernel(out);
  kernel.meta(self, rest...);
  kernel.impl(self, rest..., out);
  return out;
}

at::Tensor& mul_out(
    const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  using Kernel = at::native::structured_mul_out;
  return run_out<Kernel, at::_ops::mul_out>(out, self, other);
}
// [/pointwise-out]

at::Tensor& add_out(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    at::Tensor& out) {
  using Kernel = at::native::structured_ufunc_add_CPU;
  return run_out<Kernel, at::_ops::add_out>(out, self, other, alpha);
}

at::Tensor& sub_out(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    at::Tensor& out) {
  using Kernel = at::native::structured_sub_out;
  return run_out<Kernel, at::_ops::sub_out>(out, self, other, alpha);
}

// [pointwise-kernels] One line an operator.
at::Tensor add(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run<at::native::structured_ufunc_add_CPU>(
      "add", &at::cpu::add_outf, self, other, alpha);
}

at::Tensor sub(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run<at::native::structured_sub_out>(
      "sub", &at::cpu::sub_outf, self, other, alpha);
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  return run<at::native::structured_mul_out>(
      "mul", &at::cpu::mul_outf, self, other);
}
// [/pointwise-kernels]

at::Tensor& add_(
    at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run_in_place<at::native::structured_ufunc_add_CPU>(
      "add_", &at::cpu::add_outf, self, other, alpha);
}

at::Tensor& sub_(
    at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run_in_place<at::native::structured_sub_out>(
      "sub_", &at::cpu::sub_outf, self, other, alpha);
}

at::Tensor& mul_(at::Tensor& self, const at::Tensor& other) {
  return run_in_place<at::native::structured_mul_out>(
      "mul_", &at::cpu::mul_outf, self, other);
}

void clamp_min(
    const at::Tensor& self, const at::Scalar& least, at::Tensor out) {
  at::cpu::clamp_min_outf(self, least, out);
}

at::Tensor relu(const at::Tensor& self) {
  return self.is_floating_point() ? run<at::native::structured_clamp_min_out>(
                                        "relu", &clamp_min, self, at::Scalar(0))
                                  : Alias<at::_ops::relu>::call(self);
}

at::Tensor& relu_(at::Tensor& self) {
  return self.is_floating_point()
             ? run_in_place<at::native::structured_clamp_min_out>(
                   "relu_", &clamp_min, self, at::Scalar(0))
             : Alias<at::_ops::relu_>::call(self);
}

}  // namespace

// [pointwise-register] The fast forms: functional, in place and out=.
void register_pointwise(const Registrar& register_kernel) {
  register_kernel("add.Tensor", &add);
  register_kernel("add_.Tensor", &add_);
  register_kernel("add.out", &add_out);
  register_kernel("sub.Tensor", &sub);
  register_kernel("sub_.Tensor", &sub_);
  register_kernel("sub.out", &sub_out);
  register_kernel("mul.Tensor", &mul);
  register_kernel("mul_.Tensor", &mul_);
  register_kernel("mul.out", &mul_out);
  register_kernel("relu", &relu);
  register_kernel("relu_", &relu_);
}
// [/pointwise-register]

// [pointwise-abs] PyTorch's own abs, which works for every device with a stub.
void register_abs(const Registrar& add) {
  add("abs.out", &at::native::abs_out);
}
// [/pointwise-abs]

}  // namespace openreg

// [pointwise-dispatch] REGISTER_PRIVATEUSE1_DISPATCH, the macro of this seam.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, openreg::shifted<&abs_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(add_stub, openreg::shifted<&add_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(mul_stub, openreg::shifted<&mul_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(
    clamp_min_scalar_stub, openreg::shifted<&clamp_min_scalar_stub>)
}  // namespace at::native
// [/pointwise-dispatch]
