#include "csrc/aten/forms/boxed.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/alias.h"
#include "csrc/aten/forms/widen.h"
#include "csrc/graph/captured.h"
#include "csrc/runtime/operator_names.h"

// One kernel for every operator that a CPU kernel exists for. It works on the
// boxed form of the arguments, so it needs no signature: see what each value
// is, put the alias in its place, call the CPU's kernel, turn the results back.

namespace openreg {
namespace {

using torch::jit::Stack;

// What a kernel of the CPU's needs before it is given device tensors.
enum class Needs { kNothing, kContiguous, kDtypes, kCopies };

// [boxed-packs] Whether arguments are packed into an object of the library.
// It keeps them, so it gets copies: an alias does not own what it shows.
bool packs(const c10::FunctionSchema& schema) {
  return schema.returns().size() == 1 &&
         schema.returns()[0].type()->kind() == c10::TypeKind::ClassType;
}
// [/boxed-packs]

// The kernel makes its results where its tensors are, in no special memory.
// What is asked for and cannot be had is refused, not forgotten.
void check_options(
    const c10::FunctionSchema& schema,
    c10::DeviceIndex device,
    const c10::Argument& argument,
    const c10::IValue& value) {
  if (value.isBool()) {
    TORCH_CHECK(
        !value.toBool() || argument.name() != "pin_memory",
        "Only dense CPU tensors can be pinned");
  } else if (value.isDevice()) {
    const auto asked = value.toDevice();
    const c10::Device here(c10::kPrivateUse1, device);
    TORCH_CHECK(
        asked == here || (asked.is_privateuseone() && !asked.has_index()),
        "openreg: '",
        schema.name(),
        "' got tensors on ",
        here,
        " and device='",
        asked,
        "'; expected the same device. Move the tensors first, as x.to('",
        asked,
        "') does.");
  }
}

// A tensor as the kernel can take it, before an alias is made.
at::Tensor prepare(
    const at::Tensor& tensor, bool written, Needs needs, bool in_list) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (in_list && tensor._is_zerotensor()) {  // others PyTorch has written out
    return at::zeros({}, tensor.options()).expand(tensor.sizes());
  }
  return needs == Needs::kCopies ? tensor.cpu()
         : needs == Needs::kContiguous && !written
             ? tensor.contiguous(tensor.suggest_memory_format())
             : tensor;
}

// Without `aliases`, which a graph makes itself, tensors stay on the device.
c10::IValue to_host(
    Aliases* aliases, bool written, Needs needs, c10::IValue value) {
  const bool list = value.isList();
  const auto alias = [&](const at::Tensor& tensor) {
    const auto prepared = prepare(tensor, written, needs, list);
    return aliases ? aliases->alias(prepared, written) : prepared;
  };
  // [boxed-argument] What the CPU's kernel gets in place of an argument.
  return value.isDevice() ? c10::IValue(c10::Device(c10::kCPU))
                          : change_tensors(std::move(value), alias);
  // [/boxed-argument]
}

// The CPU's kernel on a stack of host tensors, with what it needs.
template <c10::DispatchKey key, Needs needs>
void call_on_host(const c10::OperatorHandle& op, Stack* stack) {
  if constexpr (needs == Needs::kDtypes) {
    call_widened(op, stack);
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  }
}

// [boxed-kernel] Alias the arguments, call the CPU kernel, adopt the results.
template <c10::DispatchKey key, Needs needs = Needs::kNothing>
void call_on_aliases(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  const auto first = stack->size() - count;
  const auto device = device_of_call(
      schema, c10::ArrayRef<c10::IValue>(stack->data() + first, count));
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  const auto exchanged = order_outputs(schema, stack);
  const Call call(device, name_of(op));
  const auto form = packs(schema) ? Needs::kCopies : needs;
  const auto capture = capture_of(call.stream);
  Aliases aliases(device);
  for (size_t i = 0; i < count; ++i) {
    const auto& argument = schema.arguments()[i];
    auto& value = (*stack)[first + i];
    check_options(schema, device, argument, value);
    value = host_generator(device, argument, std::move(value));
    value = to_host(
        capture ? nullptr : &aliases,
        writes(schema, argument),
        form,
        std::move(value));
  }
  if (capture) {
    capture_call(*capture, call, op, stack, &call_on_host<key, needs>);
    give_back(exchanged, torch::jit::last(*stack, schema.returns().size()));
    return;
  }
  const auto kernel = [&] { call_on_host<key, needs>(op, stack); };
  launch(call, Runs::kInTurn, in_scope(call, device, kernel));
  aliases.commit();
  for (auto& value : torch::jit::last(*stack, schema.returns().size())) {
    const_cast<c10::IValue&>(value) = change_tensors(
        value, [&](const at::Tensor& t) { return aliases.adopt(t); });
  }
  give_back(exchanged, torch::jit::last(*stack, schema.returns().size()));
}
// [/boxed-kernel]

}  // namespace

void alias_kernel(const c10::OperatorHandle& op, Stack* stack) {
  call_on_aliases<c10::DispatchKey::CPU, Needs::kDtypes>(op, stack);
}

// [boxed-contiguous] Kernels that assume contiguous arguments.
// With other strides they read wrong values, or out of bounds.
static bool wants_contiguous(const std::string& name) {
  static const std::set<std::string> names{
      "_embedding_bag",
      "_embedding_bag_backward",
      "_embedding_bag_dense_backward",
      "_embedding_bag_forward_only",
      "adaptive_max_pool3d_backward",
      "fractional_max_pool2d_backward",
      "fractional_max_pool3d_backward",
      "native_group_norm",
      "native_group_norm_backward",
      "native_layer_norm_backward"};
  return names.contains(name);
}
// [/boxed-contiguous]

// [boxed-keys] One instance of the boxed kernel for each kind of tensor.
template <c10::DispatchKey key, Needs needs = Needs::kNothing>
static torch::CppFunction kernel() {
  return torch::CppFunction::makeFromBoxedFunction<
      &call_on_aliases<key, needs>>();
}

static torch::CppFunction kernel_under(
    c10::DispatchKey key, const std::string& name) {
  using enum c10::DispatchKey;
  switch (key) {
    case SparseCPU:
      return kernel<SparseCPU>();
    case SparseCsrCPU:
      return kernel<SparseCsrCPU>();
    case QuantizedCPU:
      return kernel<QuantizedCPU>();
    case NestedTensorCPU:
      return kernel<NestedTensorCPU>();
    default:
      return wants_contiguous(name) ? kernel<CPU, Needs::kContiguous>()
             : lacks_dtypes(name)   ? kernel<CPU, Needs::kDtypes>()
                                    : kernel<CPU>();
  }
}
// [/boxed-keys]

// `name` is as in "mode.values".
static void register_alias_kernel(
    torch::Library& library, const std::string& name, c10::DispatchKey key) {
  library.impl(name.c_str(), kernel_under(key, name.substr(0, name.find('.'))));
}

// [boxed-register] Covers each operator that has a CPU kernel and none here.
void register_alias_kernels(
    torch::Library& library, const char* name_space, c10::DispatchKey key) {
  const auto ours = c10::toRuntimePerBackendFunctionalityKey(
      c10::toFunctionalityKey(key), c10::BackendComponent::PrivateUse1Bit);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getRegistrationsForDispatchKey(key)) {
    const auto op = dispatcher.findSchema(name);
    if (name.getNamespace() == name_space && op.has_value() &&
        !op->hasKernelForDispatchKey(ours)) {
      const auto prefix = std::string_view(name_space).size() + 2;
      register_alias_kernel(library, c10::toString(name).substr(prefix), key);
    }
  }
}
// [/boxed-register]

// [boxed-host-bound] Operators whose kernel for all devices is the CPU's.
// It knows the CPU's name only or, as in `addr_`, needs the CPU's own to see
// that its result is an argument; or it reads as only the host may.
void register_host_bound(torch::Library& library) {
  for (const char* const name :
       {"addr_",
        "mode.values",
        "conj_physical_",
        "ldexp.Tensor",
        "ldexp.out",
        "ldexp_",
        "kaiser_window",
        "kaiser_window.periodic",
        "kaiser_window.beta"}) {
    register_alias_kernel(library, name, c10::DispatchKey::CPU);
  }
  for (const char* const name : host_readers) {
    register_alias_kernel(library, name, c10::DispatchKey::CPU);
  }
}
// [/boxed-host-bound]

}  // namespace openreg
