#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Operators.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <torch/library.h>

#include <openreg/runtime/address.h>
#include <openreg/runtime/generator.h>
#include <openreg/runtime/stream.h>

// Kernels for float32 that the device runs itself, from the iterator that
// PyTorch builds to the launch. What is between the regions' markers is what
// the chapter shows: a reader who copies that, in its order, has this file.

namespace {

// [kernel-plan] All that a kernel needs of an iterator, in a block to copy.
using at::Tensor;

constexpr int kOperands = 3, kDims = 12;

struct Operand {
  char* address;           // of the first element, where a kernel looks
  int64_t strides[kDims];  // in bytes; 0 where it is broadcast, or reduced
  at::ScalarType dtype;
  float number;  // the value of a CPU scalar, which has no address
  bool is_number;
};

struct Plan {
  int64_t sizes[kDims];  // the dimension that is walked first comes first
  int dims;
  Operand operands[kOperands];  // the results, then the arguments

  // One thread finds its element by its number.
  char* locate(int operand, int64_t index) const {
    const Operand& self = operands[operand];
    char* address = self.address;
    for (int dim = 0; dim < dims; ++dim) {
      address += index % sizes[dim] * self.strides[dim];
      index /= sizes[dim];
    }
    return address;
  }
  float load(int operand, int64_t index) const {
    const Operand& self = operands[operand];
    return self.is_number
               ? self.number
               : c10::fetch_and_cast<float>(self.dtype, locate(operand, index));
  }
  void store(int64_t index, float value) const {
    std::memcpy(locate(0, index), &value, sizeof(value));
  }
};
// [/kernel-plan]

// [kernel-make-plan] Copies sizes, byte strides and addresses out of `iter`.
Plan make_plan(at::TensorIteratorBase& iter) {
  Plan plan{};
  plan.dims = iter.ndim();
  for (int dim = 0; dim < plan.dims; ++dim) {
    plan.sizes[dim] = iter.shape()[dim];
  }
  for (int i = 0; i < iter.ntensors(); ++i) {
    Operand& operand = plan.operands[i];
    operand.dtype = iter.dtype(i);
    operand.is_number = iter.is_cpu_scalar(i);
    if (operand.is_number) {
      operand.number = iter.scalar_value<float>(i);
      continue;
    }
    operand.address = openreg::to_kernel(static_cast<char*>(iter.data_ptr(i)));
    for (int dim = 0; dim < plan.dims; ++dim) {
      operand.strides[dim] = iter.strides(i)[dim];
    }
  }
  return plan;
}
// [/kernel-make-plan]

// [kernel-launch] Runs `body` for the elements 0 to `count`, in stream order.
template <typename Body>
void launch(
    const char* name, at::TensorIteratorBase& iter, int64_t count, Body body) {
  struct Work {
    Plan plan;
    int64_t count;
    Body body;
  };
  if (count == 0) {
    return;
  }
  const auto run = [](void* args) {
    const Work& work = *static_cast<const Work*>(args);
    for (int64_t i = 0; i < work.count; ++i) {
      work.body(work.plan, i);
    }
    return orSuccess;
  };
  OPENREG_CHECK(orLaunchKernel(
      openreg::current_stream(iter.device(0).index()),
      name,
      run,
      new Work{make_plan(iter), count, std::move(body)},
      [](void* args) { delete static_cast<Work*>(args); }));
}
// [/kernel-launch]

// [kernel-describe] An iterator that is built by hand, and what it holds.
std::string describe(const Tensor& self, const Tensor& other) {
  const Tensor undefined;  // so the iterator makes the result
  const auto iter = at::TensorIteratorConfig()
                        .add_output(undefined)
                        .add_const_input(self)
                        .add_const_input(other)
                        .allow_cpu_scalars(true)
                        .promote_inputs_to_common_dtype(true)
                        .build();
  std::ostringstream text;
  text << iter.common_dtype() << ' ' << iter.shape();
  for (int i = 0; i < iter.ntensors(); ++i) {
    text << '\n' << i << ' ' << iter.dtype(i) << ' ' << iter.strides(i);
    text << (iter.is_cpu_scalar(i) ? " on the host" : "");
  }
  return text.str();
}
// [/kernel-describe]

// [kernel-decline] Whether the kernels of this file compute a call.
bool computes(const at::TensorIteratorBase& iter) {
  return iter.common_dtype() == at::kFloat && iter.dtype(0) == at::kFloat &&
         iter.ndim() <= kDims;
}

void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// The operator on the host, for the calls that they do not.
template <typename Op, typename... Args>
decltype(auto) decline(Args&&... args) {
  return at::native::call_fallback_fn<&on_host, Op>::call(
      std::forward<Args>(args)...);
}
// [/kernel-decline]

// [kernel-into] The result of a structured kernel, which the caller provides.
template <typename Meta>
struct Into final : Meta {
  explicit Into(const Tensor& out) : output(out) {}

  const Tensor& maybe_get_output(int64_t) override {
    return output;
  }
  void set_output_raw_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    TORCH_CHECK(
        output.dtype() == options.dtype(),
        "Expected out tensor to have dtype ",
        options.dtype(),
        ", but got ",
        output.dtype(),
        " instead");
    if (at::native::resize_output(output, sizes)) {
      const auto format = options.memory_format_opt();
      if (!strides.empty()) {
        output.as_strided_(sizes, strides);
      } else if (format) {
        output.unsafeGetTensorImpl()->empty_tensor_restride(*format);
      }
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }

  const Tensor& output;
};
// [/kernel-into]

// [kernel-mul] The kernel of `x * y`.
Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  Into<at::meta::structured_mul_Tensor> iter(out);
  iter.meta(self, other);
  if (!computes(iter)) {
    return decline<ATEN_OP2(mul, out)>(self, other, out);
  }
  launch("aten::mul.out", iter, iter.numel(), [](const Plan& plan, int64_t i) {
    plan.store(i, plan.load(1, i) * plan.load(2, i));
  });
  return out;
}
// [/kernel-mul]

// [kernel-threshold] The gradient of ReLU; `self` and `gradient` are operands.
template <int self, int gradient>
Tensor& threshold_backward_out(
    const Tensor& grad_output,
    const Tensor& input,
    const at::Scalar& threshold,
    Tensor& grad_input) {
  Into<at::meta::structured_threshold_backward> iter(grad_input);
  iter.meta(grad_output, input, threshold);
  if (!computes(iter)) {
    return decline<ATEN_OP2(threshold_backward, grad_input)>(
        grad_output, input, threshold, grad_input);
  }
  const auto least = threshold.to<float>();
  launch(
      "aten::threshold_backward.grad_input",
      iter,
      iter.numel(),
      [least](const Plan& plan, int64_t i) {
        const bool passes = !(plan.load(self, i) <= least);  // so does NaN
        plan.store(i, passes ? plan.load(gradient, i) : 0);
      });
  return grad_input;
}
// [/kernel-threshold]

// [kernel-swapped] The same kernel with the operands in the schema's order.
Tensor swapped(
    const Tensor& gradient, const Tensor& input, const at::Scalar& threshold) {
  auto result = at::empty_like(input);
  return threshold_backward_out<2, 1>(gradient, input, threshold, result);
}
// [/kernel-swapped]

// [kernel-sum] One thread adds up the elements of one result.
Tensor& sum_out(
    const Tensor& self,
    at::OptionalIntArrayRef dims,
    bool keepdim,
    std::optional<at::ScalarType> dtype,
    Tensor& out) {
  Into<at::meta::structured_sum_dim_IntList> shaped(out);
  shaped.meta(self, dims, keepdim, dtype);
  auto iter = at::meta::make_reduction(
      self, out, dims, keepdim, /*in_dtype=*/out.scalar_type());
  if (iter.numel() == 0) {
    return out.zero_();  // of no elements
  }
  if (!computes(iter)) {
    return decline<ATEN_OP2(sum, IntList_out)>(self, dims, keepdim, dtype, out);
  }
  int64_t length = 1;
  for (int dim = 0; dim < iter.num_reduce_dims(); ++dim) {
    length *= iter.shape()[dim];
  }
  const auto add_up = [length](const Plan& plan, int64_t i) {
    double total = 0;
    for (int64_t j = i * length; j < (i + 1) * length; ++j) {
      total += plan.load(1, j);
    }
    plan.store(i * length, static_cast<float>(total));
  };
  launch("aten::sum.IntList_out", iter, iter.num_output_elements(), add_up);
  return out;
}
// [/kernel-sum]

// [kernel-nullary] A nullary iterator that is built like the others.
void nullary(const Tensor& self) {
  at::TensorIteratorConfig().add_output(self).build();
}
// [/kernel-nullary]

// [kernel-philox] A generator whose state is a seed and an offset.
struct State {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;
};

class Philox final : public c10::GeneratorImpl {
 public:
  explicit Philox(c10::DeviceIndex device, State state = {})
      : GeneratorImpl(
            c10::Device(c10::kPrivateUse1, device),
            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(state) {}

  // What a launch draws from. The offset moves on now, on the host.
  State take() {
    const std::lock_guard lock(mutex_);
    const State taken = state_;
    ++state_.offset;
    return taken;
  }

  // PyTorch holds the mutex when it calls these two.
  void set_current_seed(uint64_t seed) override {
    state_ = {seed, 0};
  }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  // [/kernel-philox]

  // [kernel-state] The state is 16 bytes of the host.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({sizeof(State)}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), &state_, sizeof(State));
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == sizeof(State), "RNG state is wrong size");
    std::memcpy(&state_, state.data(), sizeof(State));
  }
  void set_offset(uint64_t offset) override {
    state_.offset = offset;
  }

  // PyTorch holds the mutex for those above, and not for these (torch 2.13).
  uint64_t current_seed() const override {
    return look().seed;
  }
  uint64_t get_offset() const override {
    return look().offset;
  }

 private:
  State look() const {
    const std::lock_guard lock(const_cast<Philox*>(this)->mutex_);
    return state_;
  }
  Philox* clone_impl() const override {
    return new Philox(device().index(), state_);
  }

  State state_;
};
// [/kernel-state]

// [kernel-host-generator] The generator of the host for a call that declines.
Philox* as_philox(
    const std::optional<at::Generator>& generator, c10::Device device) {
  auto* const given = generator ? generator->unsafeGetGeneratorImpl() : nullptr;
  auto* const philox = dynamic_cast<Philox*>(given);
  TORCH_CHECK(
      philox == nullptr || philox->device() == device,
      "Expected a '",
      device,
      "' generator device but found '",
      given->device(),
      "'");
  return philox;
}

at::Generator host_generator(
    const std::optional<at::Generator>& generator, c10::Device device) {
  Philox* const philox = as_philox(generator, device);
  if (philox == nullptr) {  // openreg's, or none: openreg has one for the host
    const auto index = device.index();
    return openreg::inner_generator(
        generator.value_or(openreg::default_generator(index)), index);
  }
  const auto [seed, offset] = philox->take();
  at::Philox4_32 engine(seed, /*subsequence=*/UINT64_MAX, offset);
  return at::detail::createCPUGenerator(engine());
}
// [/kernel-host-generator]

// [kernel-uniform] Each element computes its number, whoever computes it.
template <typename RNG>
struct Uniform {
  void operator()(
      at::TensorIteratorBase& iter,
      double from,
      double to,
      const std::optional<at::Generator>& generator) const {
    Philox* const philox = as_philox(generator, iter.device());
    if (philox == nullptr || iter.dtype() != at::kFloat ||
        iter.ndim() > kDims) {
      Tensor self = iter.tensor(0);
      decline<ATEN_OP(uniform_)>(
          self, from, to, host_generator(generator, iter.device()));
      return;
    }
    const auto draw = [from, to, state = philox->take()](
                          const Plan& plan, int64_t i) {
      at::Philox4_32 engine(state.seed, static_cast<uint64_t>(i), state.offset);
      const double fraction = (engine() >> 8) * 0x1p-24;  // below 1
      const auto x = static_cast<float>(from + (to - from) * fraction);
      plan.store(i, x < to ? x : static_cast<float>(from));  // rounded up
    };
    launch("aten::uniform_", iter, iter.numel(), draw);
  }
};

Tensor& uniform_(
    Tensor& self,
    double from,
    double to,
    std::optional<at::Generator> generator) {
  return at::native::templates::uniform_impl_<Uniform, Philox>(
      self, from, to, std::move(generator));
}
// [/kernel-uniform]

// [kernel-register] The kernels, and four operators for this page.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("mul.out", &mul_out);
  library.impl("threshold_backward.grad_input", &threshold_backward_out<1, 2>);
  library.impl("sum.IntList_out", &sum_out);
  library.impl("uniform_", &uniform_);
}

TORCH_LIBRARY(kernel, library) {
  library.def("describe(Tensor self, Tensor other) -> str", &describe);
  library.def(
      "swapped(Tensor gradient, Tensor self, Scalar threshold) -> Tensor",
      &swapped);
  library.def("nullary(Tensor self) -> ()", &nullary);
  library.def("philox(int device) -> Generator?", [](int64_t device) {
    return at::make_generator<Philox>(static_cast<c10::DeviceIndex>(device));
  });
}
// [/kernel-register]

// [kernel-neg] A kernel for `-x`: one operand less, and the rest as before.
Tensor& neg_out(const Tensor& self, Tensor& out) {
  Into<at::meta::structured_neg> iter(out);
  iter.meta(self);
  if (!computes(iter)) {
    return decline<ATEN_OP2(neg, out)>(self, out);
  }
  launch("aten::neg.out", iter, iter.numel(), [](const Plan& plan, int64_t i) {
    plan.store(i, -plan.load(1, i));
  });
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("neg.out", &neg_out);
}
// [/kernel-neg]

}  // namespace

// expect: ok
