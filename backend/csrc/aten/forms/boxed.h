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
using Boxed = at::native::call_fallback_fn<&alias_kernel, Op>;

// Registers with `library` an alias kernel for every operator of the namespace
// that has a kernel under `key`, the CPU's twin of the library's own key, and
// none of the device yet; so it comes last.
void register_alias_kernels(
    torch::Library& library, const char* name_space, c10::DispatchKey key);

// Alias kernels for operators whose kernel for all devices is the CPU's.
void register_host_bound(torch::Library& library);

}  // namespace openreg
