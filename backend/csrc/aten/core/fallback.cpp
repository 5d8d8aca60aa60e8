#include "csrc/aten/core/fallback.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "csrc/aten/core/arguments.h"
#include "csrc/aten/core/kernels.h"

namespace openreg {
namespace {

// Every thread's fallbacks, autograd's too, follow one policy.
struct State {
  std::mutex mutex;
  FallbackPolicy policy{"allow", {}};
  std::map<std::string, int64_t> calls;
  std::set<std::string> warned;
};

State& state() {
  static auto* const instance = new State;
  return *instance;
}

// What was said of an operator's name counts more than what was said of all.
const std::string& policy_of(const std::string& name) {
  const auto& [all, named] = state().policy;
  for (const auto& key : {name, name.substr(0, name.find('.'))}) {
    if (const auto found = named.find(key); found != named.end()) {
      return found->second;
    }
  }
  return all;
}

// [fallback-policy] Applies the policy: refuse, or count and perhaps warn.
void obey_policy(const std::string& name) {
  std::unique_lock lock(state().mutex);
  const auto& policy = policy_of(name);
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy != "forbid",
      "openreg: '",
      name,
      "' has no kernel for the device, and torch.openreg.fallback forbids "
      "running it on the host.");
  ++state().calls[name];
  if (policy == "warn" && state().warned.insert(name).second) {
    lock.unlock();  // a warning may run Python
    TORCH_WARN(
        "openreg: '",
        name,
        "' has no kernel for the device and runs on the host, on copies.");
  }
}
// [/fallback-policy]

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

// [fallback-refuse] Refuses operators that copies cannot serve correctly.
void refuse_foundation_and_views(
    const c10::FunctionSchema& schema, const std::string& name) {
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
}
// [/fallback-refuse]

// [fallback-random] An operator that draws must take a generator.
// Else it would draw from the CPU's, and the device's seed would do nothing.
void refuse_hidden_draws(
    const c10::OperatorHandle& op, const std::string& name) {
  const auto& arguments = op.schema().arguments();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !op.hasTag(at::Tag::nondeterministic_seeded) ||
          std::ranges::any_of(arguments, &is_generator),
      "openreg: '",
      name,
      "' may draw random numbers and takes no generator, so the CPU fallback "
      "would draw from the CPU's. Register a kernel for it under PrivateUse1.");
}
// [/fallback-random]

// The copies of one call. A kernel that gets a tensor twice finds the same copy
// twice. This lives as long as one fallback, on the thread that makes it.
class Copies {
 public:
  static inline thread_local Copies* current = nullptr;

  Copies() : outer_(std::exchange(current, this)) {}
  ~Copies() {
    current = outer_;
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // [fallback-copies] A tensor that is passed twice is copied once.
  at::Tensor of(const at::Tensor& tensor) {
    for (const auto& [device, host] : pairs_) {
      if (device.is_same(tensor) || same_elements(device, tensor)) {
        return host;
      }
    }
    return pairs_.emplace_back(tensor, tensor.cpu()).second;
  }
  // [/fallback-copies]

 private:
  static bool same_elements(const at::Tensor& a, const at::Tensor& b) {
    return at::get_overlap_status(a, b) == at::MemOverlapStatus::Full &&
           a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
           a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
  }
  Copies* const outer_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

// [fallback-to-cpu] PyTorch's fallback calls this operator to copy tensors.
std::vector<at::Tensor> to_cpu(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) {
    auto* const copies = Copies::current;
    result.push_back(copies ? copies->of(tensor) : tensor.cpu());
  }
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_to_cpu", &to_cpu);
}
// [/fallback-to-cpu]

// [fallback-autograd] Autograd records the copies, to the host and back.
// Nobody else has a formula for the way back, or counts it as a change.
at::Tensor copy_back(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) {
    dst.resize_(self.sizes());
  }
  return dst.copy_(self);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_to_cpu", &to_cpu);
  library.impl("_copy_from_and_resize", &copy_back);
}
// [/fallback-autograd]

}  // namespace

// [fallback-kernel] Check, count, then PyTorch's own boxed fallback.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto name = c10::toString(op.operator_name());
  const auto count = schema.arguments().size();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
  const auto arguments = torch::jit::last(*stack, count);

  refuse_foundation_and_views(schema, name);
  refuse_hidden_draws(op, name);
  const auto device = device_of_call(schema, arguments);
  refuse_partial_overlap(schema, arguments);
  obey_policy(name);

  // Those that the schema does not call written, PyTorch does not copy back.
  std::vector<at::Tensor> unsaid;
  for (size_t i = 0; i < count; ++i) {
    const auto& argument = schema.arguments()[i];
    // Lists come out with a type that PyTorch's fallback knows.
    first[i] = change_tensors(
        host_generator(device, argument, first[i]),
        [](const at::Tensor& tensor) { return tensor; });
    if (argument.alias_info() == nullptr && writes(schema, argument) &&
        first[i].isTensor() && first[i].toTensor().defined()) {
      unsaid.push_back(first[i].toTensor());
    }
  }
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  const auto exchanged = order_outputs(schema, stack);
  Copies copies;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  for (const auto& tensor : unsaid) {
    tensor.copy_(copies.of(tensor));
  }
  give_back(exchanged, torch::jit::last(*stack, schema.returns().size()));
}
// [/fallback-kernel]

static void check_word(const std::string& word) {
  TORCH_CHECK_VALUE(
      word == "allow" || word == "warn" || word == "forbid",
      "The fallback policy is '",
      word,
      "'; expected 'allow', 'warn' or 'forbid'.");
}

void set_fallback_policy(const FallbackPolicy& policy) {
  check_word(policy.first);
  for (const auto& [name, word] : policy.second) {
    check_word(word);
  }
  std::lock_guard lock(state().mutex);
  state().policy = policy;
}

FallbackPolicy fallback_policy() {
  std::lock_guard lock(state().mutex);
  return state().policy;
}

std::map<std::string, int64_t> fallback_counts() {
  std::lock_guard lock(state().mutex);
  return state().calls;
}

void reset_fallback_counts() {
  std::lock_guard lock(state().mutex);
  state().calls.clear();
  state().warned.clear();
}

// [fallback-host-library] FBGEMM's operators work only on host tensors.
// They have one kernel for all devices, which dereferences data pointers
// and packs weights into objects of the host's.
static void refuse_host_library(
    const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "openreg: '",
      op.schema().name(),
      "' calls FBGEMM, which needs host tensors. Copy its arguments first, as "
      "x.cpu() does.");
}

void register_refusals(torch::Library& library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("aten::fbgemm_")) {
      library.impl(
          c10::toString(name).substr(sizeof("aten::") - 1).c_str(),
          torch::CppFunction::makeFromBoxedFunction<&refuse_host_library>());
    }
  }
}
// [/fallback-host-library]

// [fallback-host-readers] The fallback for kernels that read host memory.
// PyTorch has one kernel for all devices, which may read copies on the host.
void register_host_readers(torch::Library& library) {
  for (const char* const name : host_readers) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}
// [/fallback-host-readers]

// [fallback-register] One fallback for every namespace and operator.
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
// [/fallback-register]

}  // namespace openreg
