#include <string>

#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"

// The shortest way to a CPU kernel, for operators that take a microsecond: no
// alias is made. PyTorch's structured kernel computes shape, strides and dtype
// on the device tensors themselves, then asks its DispatchStub for the kernel
// of the device; ours moves the iterator's addresses and calls the CPU's. An
// iterator cannot be queued, since it holds the tensors. So with work pending
// the second half is the CPU's operator on aliases instead.

namespace openreg {
namespace {

// [pointwise-stub] The device's loop shifts addresses and calls the CPU's.
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
    const auto device = iterator.device(0).index();
    const auto* const call = LoopOf::current;
    launch(
        call && call->device == device ? *call : Call(device, "loop"),
        Runs::kInTurn,
        [&] { (*stub)(c10::kCPU, iterator, args...); });
  }
};

template <auto* stub>
constexpr auto shifted =
    &Shifted<stub, typename std::remove_pointer_t<decltype(stub)>::FnPtr>::call;
// [/pointwise-stub]

// [pointwise-in-place] A structured kernel that writes to self or to out=.
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

// [pointwise-convert] Whether operands need no conversion.
// On the device an iterator leaves type promotion to the kernel, and a CPU
// kernel expects it done. So all are of one dtype; a number may be the host's.
inline bool needs_no_conversion(
    const at::Tensor& self, const at::Tensor& other) {
  const auto& host = self.is_cpu() ? self : other;
  return self.scalar_type() == other.scalar_type() &&
         (self.device() == other.device() || (host.is_cpu() && !host.dim()));
}
// [/pointwise-convert]
inline bool needs_no_conversion(const at::Tensor&, const at::Scalar&) {
  return true;
}

// [pointwise-number] A number from Python, in the dtype of the tensor it meets.
// What Python passes for 2 in `x * 2` is a 0-dim CPU tensor of its own dtype;
// the result has that of x. This is the conversion that the CPU's iterator
// makes. Lower precisions keep it as it is: their kernels compute in float.
c10::MaybeOwned<at::Tensor> number_for(
    const at::Tensor& self, const at::Tensor& other) {
  const auto type = self.scalar_type();
  const auto from = other.scalar_type();
  if (!other.unsafeGetTensorImpl()->is_wrapped_number() || type == from ||
      (type != at::kFloat && type != at::kDouble) ||
      (from != at::kDouble && from != at::kLong)) {
    return c10::MaybeOwned<at::Tensor>::borrowed(other);
  }
  at::Tensor result(at::detail::empty_cpu({}, type));
  const auto assign = [&](auto value) {
    if (type == at::kFloat) {
      *result.mutable_data_ptr<float>() = static_cast<float>(value);
    } else {
      *result.mutable_data_ptr<double>() = static_cast<double>(value);
    }
  };
  from == at::kDouble ? assign(*other.const_data_ptr<double>())
                      : assign(*other.const_data_ptr<int64_t>());
  return c10::MaybeOwned<at::Tensor>::owned(std::move(result));
}
// [/pointwise-number]
inline const at::Scalar* number_for(
    const at::Tensor&, const at::Scalar& number) {
  return &number;
}

// Whether the shifted form can serve: only here, and on operands as they are.
template <typename... Rest>
bool shifts(const Call& call, const at::Tensor& self, const Rest&... rest) {
  return most_kernels_take(self) && (needs_no_conversion(self, rest) && ...) &&
         call.runs_inline();
}

inline bool goes_with(const at::Scalar& number, const at::Tensor& tensor) {
  return converts(number, tensor.scalar_type());
}
inline bool goes_with(const at::Tensor& tensor, const at::Tensor&) {
  return most_kernels_take(tensor);
}
template <typename A, typename B>
bool goes_with(const A&, const B&) {
  return true;
}

// Whether the other form refuses nothing: `meta` has checked all but these.
template <typename... Args>
bool cannot_refuse(const Args&... args) {
  const auto goes_with_all = [&](const auto& one) {
    return (goes_with(one, args) && ...);
  };
  return (goes_with_all(args) && ...);
}

// [pointwise-launch] Runs `meta`, then `impl` or, later, the CPU's operator.
// `Out` is the CPU's operator with the result as its last argument.
template <typename Out, typename Kernel, typename... Args>
void launch_halves(Kernel& kernel, const char* name, const Args&... args) {
  kernel.meta(args...);
  const auto& output = kernel.output;
  const Call call(output.device().index(), name);
  if (shifts(call, args...)) {
    const LoopOf loop(call);
    kernel.impl(args..., output);
    return;
  }
  launch_on_aliases(
      call,
      queued_if(cannot_refuse(args..., output)),
      [](auto&... aliases) {
        constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
        Out::redispatch(cpu, aliases...);
      },
      args...,
      output);
}
// [/pointwise-launch]

// [pointwise-out] With out=: on shifted addresses, or by the boxed kernel.
template <typename Kernel, typename Op, typename... Args>
at::Tensor& write_out(at::Tensor& out, const Args&... args) {
  if (out.is_privateuseone()) {
    const Call call(out.device().index(), full_name<Op>);
    if (shifts(call, out, args...)) {
      Into<Kernel> kernel(out);
      kernel.meta(args...);
      const LoopOf loop(call);
      kernel.impl(args..., out);
      return out;
    }
  }
  return Boxed<Op>::call(args..., out);
}
// [/pointwise-out]

// Which dtypes go the short way. Others take an alias.
enum class Takes { kAll, kFloats };

// A function with the signature of `Op`, functional or in place.
template <typename Row, typename Op, typename Signature = typename Op::schema>
struct Form;

// [pointwise-forms] The signature says whether the result is new or self.
template <
    typename Row,
    typename Op,
    typename Result,
    typename Self,
    typename... T>
struct Form<Row, Op, Result(Self, T...)> {
  static Result call(Self self, T... rest) {
    return Row::suits(self)
               ? Row::compute(full_name<Op>, self, *number_for(self, rest)...)
               : Boxed<Op>::call(self, rest...);
  }
};
// [/pointwise-forms]

// [pointwise-row] A row: PyTorch's kernel, the CPU's operator, and dtypes.
// `numbers` are arguments that the kernel has and the operator has not.
template <typename Kernel, typename Out, Takes takes, int... numbers>
struct Row {
  static bool suits(const at::Tensor& self) {
    return takes == Takes::kAll || self.is_floating_point();
  }
  template <typename... Args>
  static at::Tensor compute(
      const char* name, const at::Tensor& self, const Args&... args) {
    Functional<Kernel> kernel;
    launch_halves<Out>(kernel, name, self, args..., at::Scalar(numbers)...);
    return std::move(kernel.output);
  }
  template <typename... Args>
  static at::Tensor& compute(
      const char* name, at::Tensor& self, const Args&... args) {
    Into<Kernel> kernel(self);
    launch_halves<Out>(kernel, name, self, args..., at::Scalar(numbers)...);
    return self;
  }
  template <typename... Ops>
  static void add(torch::Library& library) {
    (library.impl(std::string(short_name<Ops>).c_str(), &Form<Row, Ops>::call),
     ...);
  }
};
// [/pointwise-row]

template <typename Kernel, typename Op>
at::Tensor& sum_out(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    at::Tensor& out) {
  return write_out<Kernel, Op>(out, self, *number_for(self, other), alpha);
}

using Mul = Row<at::native::structured_mul_out, at::_ops::mul_out, Takes::kAll>;

// What torch._foreach_mul_ calls, with the number first. In a lower precision
// the number is rounded there, and only there.
at::Tensor& mul_out(
    const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const auto type = out.scalar_type();
  const bool reversed =
      out.is_same(other) && (type == at::kFloat || type == at::kDouble);
  if (reversed || out.is_same(self)) {
    return Mul::compute(
        full_name<at::_ops::mul_out>,
        out,
        *number_for(out, reversed ? self : other));
  }
  return write_out<at::native::structured_mul_out, at::_ops::mul_out>(
      out, self, *number_for(self, other));
}

// [pointwise-abs] PyTorch's own abs, which works for every device with a stub.
// What the loop has no code for takes an alias. So do complex numbers, whose
// result it would copy to wherever `out` is.
at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  const auto& here = out.is_privateuseone() ? out : self;
  const Call call(here.device().index(), full_name<at::_ops::abs_out>);
  if (!every_kernel_takes(self) || self.is_complex() || !call.runs_inline()) {
    return Boxed<at::_ops::abs_out>::call(self, out);
  }
  const LoopOf loop(call);
  return at::native::abs_out(self, out);
}
// [/pointwise-abs]

}  // namespace

// [pointwise-register] One row for each operator.
void register_pointwise(torch::Library& library) {
  using namespace at::native;
  namespace op = at::_ops;
  using enum Takes;
  using Add = structured_ufunc_add_CPU;
  using Sub = structured_sub_out;
  using Threshold = structured_threshold_backward_out;
  Row<Add, op::add_out, kAll>::add<op::add_Tensor, op::add__Tensor>(library);
  Row<Sub, op::sub_out, kAll>::add<op::sub_Tensor, op::sub__Tensor>(library);
  Mul::add<op::mul_Tensor, op::mul__Tensor>(library);
  library.impl("add.out", &sum_out<Add, op::add_out>);
  library.impl("sub.out", &sum_out<Sub, op::sub_out>);
  library.impl("mul.out", &mul_out);
  using Div = Row<structured_div_out, op::div_out, kFloats>;
  Div::add<op::div_Tensor, op::div__Tensor>(library);
  using Relu = Row<structured_clamp_min_out, op::clamp_min_out, kFloats, 0>;
  Relu::add<op::relu, op::relu_>(library);
  Row<structured_sqrt_out, op::sqrt_out, kFloats>::add<op::sqrt>(library);
  using Lerp = Row<structured_lerp_Scalar, op::lerp_Scalar_out, kFloats>;
  Lerp::add<op::lerp__Scalar>(library);
  Row<structured_addcmul_out, op::addcmul_out, kFloats>::add<op::addcmul_>(
      library);
  Row<structured_addcdiv_out, op::addcdiv_out, kFloats>::add<op::addcdiv_>(
      library);
  Row<Threshold, op::threshold_backward_grad_input, kFloats>::add<
      op::threshold_backward>(library);
  library.impl("abs.out", &abs_out);
}
// [/pointwise-register]

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
