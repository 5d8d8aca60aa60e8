#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace openreg {

// Runs the CPU kernel of `op` on aliases of the device tensors in `stack`.
// Raises PyTorch's message for tensors on different devices.
void alias_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// alias_kernel, called with the operator's C++ signature.
template <typename Op>
using Alias = at::native::call_fallback_fn<&alias_kernel, Op>;

// Registers alias_kernel for every ATen operator that has a CPU kernel and no
// kernel for the device yet; so it comes last.
void register_alias_kernels(torch::Library& library);

}  // namespace openreg
