#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcdiv_native.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/addcmul_native.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/lerp_native.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/sqrt_native.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_native.h>
#include <ATen/ops/threshold_backward_ops.h>

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

// [pointwise-stub] The device's loop: shift the addresses, call the CPU's.
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

// [pointwise-plain] Which operands can be shifted.
// On the device an iterator leaves type promotion to the kernel, and a CPU
// kernel expects it done. So all are of one dtype; a number may be the host's.
inline bool plain(const at::Tensor& self, const at::Tensor& other) {
  const auto& host = self.is_cpu() ? self : other;
  return self.scalar_type() == other.scalar_type() &&
         (self.device() == other.device() || (host.is_cpu() && !host.dim()));
}
// [/pointwise-plain]
inline bool plain(const at::Tensor&, const at::Scalar&) {
  return true;
}

// [pointwise-number] A number from Python, in the dtype of the tensor it meets.
// What Python passes for 2 in `x * 2` is a 0-dim CPU tensor of its own dtype;
// the result has that of x. This is the conversion that the CPU's iterator
// makes. Lower precisions keep it as it is: their kernels compute in float.
at::Tensor number_for(const at::Tensor& self, const at::Tensor& other) {
  const auto type = self.scalar_type();
  const auto from = other.scalar_type();
  if (!other.unsafeGetTensorImpl()->is_wrapped_number() || type == from ||
      (type != at::kFloat && type != at::kDouble) ||
      (from != at::kDouble && from != at::kLong)) {
    return other;
  }
  const at::Tensor result(at::detail::empty_cpu({}, type));
  const auto assign = [&](auto value) {
    if (type == at::kFloat) {
      *result.mutable_data_ptr<float>() = static_cast<float>(value);
    } else {
      *result.mutable_data_ptr<double>() = static_cast<double>(value);
    }
  };
  from == at::kDouble ? assign(*other.const_data_ptr<double>())
                      : assign(*other.const_data_ptr<int64_t>());
  return result;
}
// [/pointwise-number]

inline c10::DeviceIndex index_of(const at::Tensor& tensor) {
  return tensor.is_privateuseone() ? tensor.device().index() : -1;
}
inline c10::DeviceIndex index_of(const at::Scalar&) {
  return -1;
}

// Whether the shifted form can serve: only here, and only plain operands.
template <typename... Rest>
bool shifts(const at::Tensor& self, const Rest&... rest) {
  return is_usual_or_bool(self) && (plain(self, rest) && ...) &&
         runs_inline(std::max({index_of(self), index_of(rest)...}));
}

inline bool usual(const at::Tensor& tensor) {
  return is_usual_or_bool(tensor);
}
inline bool usual(const at::Scalar&) {
  return true;
}
inline bool fits(const at::Scalar& number, const at::Tensor& tensor) {
  return converts(number, tensor.scalar_type());
}
template <typename A, typename B>
bool fits(const A&, const B&) {
  return true;
}

// Whether the other form cannot fail: `meta` has checked all but these.
template <typename... Args>
bool sure(const Args&... args) {
  const auto fits_all = [&](const auto& number) {
    return (fits(number, args) && ...);
  };
  return (usual(args) && ...) && (fits_all(args) && ...);
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
        sure(args..., kernel.output),
        kernel.output.device().index(),
        name,
        second,
        args...,
        kernel.output);
  }
  return std::move(kernel.output);
}
// [/pointwise-run]

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

// [pointwise-out] With out=: on shifted addresses, or by the alias kernel.
template <typename Kernel, typename Op, typename... Args>
at::Tensor& run_out(at::Tensor& out, const Args&... args) {
  if (!out.is_privateuseone() || !shifts(out, args...)) {
    return Alias<Op>::call(args..., out);
  }
  Into<Kernel> kernel(out);
  kernel.meta(args...);
  kernel.impl(args..., out);
  return out;
}
// [/pointwise-out]

at::Tensor& add_out(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    at::Tensor& out) {
  using Kernel = at::native::structured_ufunc_add_CPU;
  return run_out<Kernel, at::_ops::add_out>(
      out, self, number_for(self, other), alpha);
}

at::Tensor& sub_out(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    at::Tensor& out) {
  using Kernel = at::native::structured_sub_out;
  return run_out<Kernel, at::_ops::sub_out>(
      out, self, number_for(self, other), alpha);
}

// [pointwise-kernels] One line for each operator.
at::Tensor add(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run<at::native::structured_ufunc_add_CPU>(
      "add", &at::cpu::add_outf, self, number_for(self, other), alpha);
}

at::Tensor sub(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run<at::native::structured_sub_out>(
      "sub", &at::cpu::sub_outf, self, number_for(self, other), alpha);
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  return run<at::native::structured_mul_out>(
      "mul", &at::cpu::mul_outf, self, number_for(self, other));
}
// [/pointwise-kernels]

at::Tensor& add_(
    at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run_in_place<at::native::structured_ufunc_add_CPU>(
      "add_", &at::cpu::add_outf, self, number_for(self, other), alpha);
}

at::Tensor& sub_(
    at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return run_in_place<at::native::structured_sub_out>(
      "sub_", &at::cpu::sub_outf, self, number_for(self, other), alpha);
}

at::Tensor& mul_(at::Tensor& self, const at::Tensor& other) {
  return run_in_place<at::native::structured_mul_out>(
      "mul_", &at::cpu::mul_outf, self, number_for(self, other));
}

// What torch._foreach_mul_ calls, with the number first. In a lower precision
// the number is rounded there, and only there.
at::Tensor& mul_out(
    const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const auto type = out.scalar_type();
  if (out.is_same(other) && (type == at::kFloat || type == at::kDouble)) {
    return mul_(out, self);
  }
  if (out.is_same(self)) {
    return mul_(out, other);
  }
  return run_out<at::native::structured_mul_out, at::_ops::mul_out>(
      out, self, number_for(self, other));
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

// [pointwise-floats] Floats go the short way.
// Other dtypes take an alias.
template <typename Kernel, typename Op, typename Second, typename... Args>
at::Tensor run_floats(
    const char* name, Second second, const at::Tensor& self, Args&&... args) {
  return self.is_floating_point() ? run<Kernel>(name, second, self, args...)
                                  : Alias<Op>::call(self, args...);
}
// [/pointwise-floats]

template <typename Kernel, typename Op, typename Second, typename... Args>
at::Tensor& run_floats_in_place(
    const char* name, Second second, at::Tensor& self, Args&&... args) {
  return self.is_floating_point()
             ? run_in_place<Kernel>(name, second, self, args...)
             : Alias<Op>::call(self, args...);
}

void div_out(const at::Tensor& self, const at::Tensor& other, at::Tensor out) {
  at::cpu::div_outf(self, other, out);
}

at::Tensor div(const at::Tensor& self, const at::Tensor& other) {
  return run_floats<at::native::structured_div_out, at::_ops::div_Tensor>(
      "div", &div_out, self, number_for(self, other));
}

at::Tensor& div_(at::Tensor& self, const at::Tensor& other) {
  using Kernel = at::native::structured_div_out;
  return run_floats_in_place<Kernel, at::_ops::div__Tensor>(
      "div_", &div_out, self, number_for(self, other));
}

at::Tensor sqrt(const at::Tensor& self) {
  return run_floats<at::native::structured_sqrt_out, at::_ops::sqrt>(
      "sqrt", &at::cpu::sqrt_outf, self);
}

void lerp_out(
    const at::Tensor& self,
    const at::Tensor& end,
    const at::Scalar& weight,
    at::Tensor out) {
  at::cpu::lerp_outf(self, end, weight, out);
}

at::Tensor& lerp_(
    at::Tensor& self, const at::Tensor& end, const at::Scalar& weight) {
  using Kernel = at::native::structured_lerp_Scalar;
  return run_floats_in_place<Kernel, at::_ops::lerp__Scalar>(
      "lerp_", &lerp_out, self, end, weight);
}

at::Tensor& addcmul_(
    at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const at::Scalar& value) {
  using Kernel = at::native::structured_addcmul_out;
  return run_floats_in_place<Kernel, at::_ops::addcmul_>(
      "addcmul_", &at::cpu::addcmul_outf, self, a, b, value);
}

at::Tensor& addcdiv_(
    at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const at::Scalar& value) {
  using Kernel = at::native::structured_addcdiv_out;
  return run_floats_in_place<Kernel, at::_ops::addcdiv_>(
      "addcdiv_", &at::cpu::addcdiv_outf, self, a, b, value);
}

at::Tensor threshold_backward(
    const at::Tensor& grad, const at::Tensor& self, const at::Scalar& least) {
  using Kernel = at::native::structured_threshold_backward_out;
  return self.is_floating_point()
             ? run<Kernel>(
                   "threshold_backward",
                   &at::cpu::threshold_backward_outf,
                   grad,
                   self,
                   least)
             : Alias<at::_ops::threshold_backward>::call(grad, self, least);
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
  register_kernel("div.Tensor", &div);
  register_kernel("div_.Tensor", &div_);
  register_kernel("sqrt", &sqrt);
  register_kernel("lerp_.Scalar", &lerp_);
  register_kernel("addcmul_", &addcmul_);
  register_kernel("addcdiv_", &addcdiv_);
  register_kernel("threshold_backward", &threshold_backward);
}
// [/pointwise-register]

// [pointwise-abs] PyTorch's own abs, which works for every device with a stub.
// What the loop has no code for takes an alias.
static at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  return is_usual(self) ? at::native::abs_out(self, out)
                        : Alias<at::_ops::abs_out>::call(self, out);
}

void register_abs(const Registrar& add) {
  add("abs.out", &abs_out);
}
// [/pointwise-abs]

}  // namespace openreg

// [pointwise-dispatch] Each line registers a loop for the device.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, openreg::shifted<&abs_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(add_stub, openreg::shifted<&add_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(mul_stub, openreg::shifted<&mul_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(div_true_stub, openreg::shifted<&div_true_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(sqrt_stub, openreg::shifted<&sqrt_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(addcmul_stub, openreg::shifted<&addcmul_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(addcdiv_stub, openreg::shifted<&addcdiv_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(threshold_stub, openreg::shifted<&threshold_stub>)
REGISTER_PRIVATEUSE1_DISPATCH(
    lerp_kernel_scalar_weight, openreg::shifted<&lerp_kernel_scalar_weight>)
REGISTER_PRIVATEUSE1_DISPATCH(
    clamp_min_scalar_stub, openreg::shifted<&clamp_min_scalar_stub>)
}  // namespace at::native
// [/pointwise-dispatch]
