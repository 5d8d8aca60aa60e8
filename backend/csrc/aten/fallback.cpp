#include "csrc/aten/fallback.h"

#include <atomic>
#include <mutex>

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/registry.h"

namespace openreg {
namespace {

std::atomic<FallbackMode> mode{FallbackMode::allow};

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
};

Counts& counts() {
  static auto* const instance = new Counts;
  return *instance;
}

// [fallback-refuse] What no copy can do right is refused.
// A view made on a copy would not alias, and tensors of two devices would be
// brought together silently.
void check_arguments(
    const c10::FunctionSchema& schema,
    const torch::jit::Stack& stack) {
  for (const auto& result : schema.returns()) {
    const auto* const alias = result.alias_info();
    TORCH_CHECK_NOT_IMPLEMENTED(
        alias == nullptr || alias->isWrite(),
        "openreg: the view operator '",
        schema.operator_name(),
        "' has no kernel for the device, and the CPU fallback cannot make a "
        "view. Register a kernel for it under PrivateUse1.");
  }
  CommonDevice common;
  const auto arguments = torch::jit::last(stack, schema.arguments().size());
  for (const auto& value : arguments) {
    if (value.isTensor()) {
      common.add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        common.add(tensor);
      }
    }
  }
}
// [/fallback-refuse]

void count(const std::string& name) {
  int64_t calls = 0;
  {
    std::lock_guard lock(counts().mutex);
    calls = ++counts().calls[name];
  }
  if (mode == FallbackMode::warn && calls == 1) {
    TORCH_WARN(
        "openreg: '",
        name,
        "' has no kernel for the device and runs on the host, on copies.");
  }
}

// [fallback-kernel] Refuse, count, then PyTorch's own boxed fallback.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      mode != FallbackMode::forbid,
      "openreg: '",
      name,
      "' has no kernel for the device, and torch.openreg.fallback forbids "
      "running it on the host.");
  check_arguments(op.schema(), *stack);
  count(name);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}
// [/fallback-kernel]

} // namespace

FallbackMode set_fallback_mode(FallbackMode next) {
  return mode.exchange(next);
}

FallbackMode fallback_mode() {
  return mode;
}

std::map<std::string, int64_t> fallback_counts() {
  std::lock_guard lock(counts().mutex);
  return counts().calls;
}

void reset_fallback_counts() {
  std::lock_guard lock(counts().mutex);
  counts().calls.clear();
}

// [fallback-register] `_` stands for every namespace and operator.
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  if (!omitted("fallback")) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}
// [/fallback-register]

} // namespace openreg
