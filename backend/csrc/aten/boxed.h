#pragma once

#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "csrc/aten/parts.h"

namespace openreg {

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

// Runs the CPU kernel of `op` on aliases of the device tensors in `stack`.
// Raises PyTorch's message for tensors on different devices.
void alias_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// alias_kernel, called with the operator's C++ signature.
template <typename Op>
using Alias = at::native::call_fallback_fn<&alias_kernel, Op>;

// Registers with `library` an alias kernel for every operator of the namespace
// that has a kernel under `key`, the CPU's twin of the library's own key, and
// none of the device yet; so it comes last.
void register_alias_kernels(
    torch::Library& library, const char* name_space, c10::DispatchKey key);

// Alias kernels for operators whose kernel for all devices is the CPU's.
void register_host_bound(torch::Library& library);

}  // namespace openreg
