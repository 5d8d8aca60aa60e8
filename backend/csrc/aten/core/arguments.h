#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

// The arguments of a call: which device they are on, which of them an operator
// writes, and how to exchange those that are tensors.

namespace openreg {

// The device of all the tensors that one operator got. `add` raises PyTorch's
// message when there are two.
class CommonDevice {
 public:
  // A 0-dim CPU tensor may accompany device tensors; it is read as a number.
  // One that the operator writes may not.
  void add(const at::Tensor& tensor, bool written = false);
  // -1 when no device tensor was added.
  c10::DeviceIndex index() const {
    return device_.has_value() ? device_->index() : c10::DeviceIndex{-1};
  }

 private:
  std::optional<c10::Device> device_;
  std::optional<c10::Device> elsewhere_;
};

// The device of the tensors among these arguments, or -1.
template <typename... Args>
c10::DeviceIndex common_device(const Args&... args) {
  CommonDevice common;
  const auto see = [&](const auto& arg) {
    using Arg = std::remove_cvref_t<decltype(arg)>;
    if constexpr (std::is_same_v<Arg, at::Tensor>) {
      common.add(arg);
    } else if constexpr (std::is_same_v<Arg, std::optional<at::Tensor>>) {
      common.add(arg.value_or(at::Tensor()));
    }
  };
  (see(args), ...);
  return common.index();
}

// The device of a call: that of its tensors, or the one that is asked for.
// Raises PyTorch's message for tensors on different devices.
c10::DeviceIndex device_of_call(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

// What a CPU kernel draws from, where `argument` is a generator: the device's
// own for None. Any other value comes back as it is.
c10::IValue host_generator(
    c10::DeviceIndex device, const c10::Argument& argument, c10::IValue value);

// Whether the operator writes to `argument`.
bool writes(const c10::FunctionSchema& schema, const c10::Argument& argument);

// Whether `argument` is a generator, or may be one.
bool is_generator(const c10::Argument& argument);

// Calls `use` with each tensor of a value, in a list of any type, too: where a
// tensor is optional, TorchScript's type is another object than PyTorch's.
template <typename Use>
void for_each_tensor(const c10::IValue& value, Use&& use) {
  if (value.isTensor()) {
    use(value.toTensor());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) {
      for_each_tensor(element, use);
    }
  }
}

// Returns what takes a tensor's place.
using ChangeSides = c10::function_ref<at::Tensor(const at::Tensor&)>;

// The value with what `change` returns in the place of each tensor.
c10::IValue change_tensors(c10::IValue value, ChangeSides change);

// Raises PyTorch's message if a written argument shares some of its elements
// with another.
void refuse_partial_overlap(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

// Tensors given as `out=`, and those that a kernel gets in their place.
using Exchanged = c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2>;

// Puts a contiguous tensor in the place of each `out=` on `stack` that is not.
Exchanged order_outputs(
    const c10::FunctionSchema& schema, torch::jit::Stack* stack);

// Copies them back, also into the place of `results`.
void give_back(const Exchanged& exchanged, c10::ArrayRef<c10::IValue> results);

}  // namespace openreg
