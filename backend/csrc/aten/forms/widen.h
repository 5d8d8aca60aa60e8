#pragma once

#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg {

// Whether the CPU's kernels of this name lack a dtype that we compute in the
// next one.
bool lacks_dtypes(std::string_view name);

// Calls the CPU kernel of such an operator on aliases, in a dtype that it has,
// and rounds what comes of it.
void call_widened(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace openreg
