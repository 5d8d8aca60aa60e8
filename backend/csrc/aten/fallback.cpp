#include "csrc/aten/fallback.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_set>

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/registry.h"

namespace openreg {
namespace {

enum class Mode { allow, warn, forbid };

constexpr std::array<const char*, 3> mode_names{"allow", "warn", "forbid"};

std::atomic<Mode> mode{Mode::allow};

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
};

Counts& counts() {
  static auto* const instance = new Counts;
  return *instance;
}

// Operators that make, copy or rehouse a tensor: the fallback makes its copies
// with them, so it cannot stand in for them.
bool is_foundation(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::empty.memory_format",
      "aten::empty_strided",
      "aten::_copy_from",
      "aten::_copy_from_and_resize",
      "aten::resize_",
      "aten::set_",
      "aten::set_.source_Tensor",
      "aten::set_.source_Storage",
      "aten::set_.source_Storage_storage_offset"};
  return names.count(name) != 0;
}

// [fallback-refuse] What no copy can do right is refused.
// A view made on a copy would not alias, and tensors of two devices would be
// brought together silently.
void check_arguments(
    const c10::FunctionSchema& schema,
    const std::string& name,
    const torch::jit::Stack& stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_foundation(name),
      "openreg: the CPU fallback is itself built on '",
      name,
      "'. Register a kernel for it under PrivateUse1.");
  for (const auto& result : schema.returns()) {
    const auto* const alias = result.alias_info();
    TORCH_CHECK_NOT_IMPLEMENTED(
        alias == nullptr || alias->isWrite(),
        "openreg: the view operator '",
        name,
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
  if (mode == Mode::warn && calls == 1) {
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
      mode != Mode::forbid,
      "openreg: '",
      name,
      "' has no kernel for the device, and torch.openreg.fallback forbids "
      "running it on the host.");
  check_arguments(op.schema(), name, *stack);
  count(name);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}
// [/fallback-kernel]

}  // namespace

std::string set_fallback_mode(const std::string& name) {
  const auto found = std::find(mode_names.begin(), mode_names.end(), name);
  TORCH_CHECK_VALUE(
      found != mode_names.end(),
      "The fallback mode is '",
      name,
      "'; expected 'allow', 'warn' or 'forbid'.");
  const auto next = static_cast<Mode>(found - mode_names.begin());
  return mode_names[static_cast<size_t>(mode.exchange(next))];
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

}  // namespace openreg
