#include "csrc/aten/boxed.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Generator.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/forms/widen.h"
#include "csrc/aten/registry.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/trace.h"

// One kernel for every operator that a CPU kernel exists for. It works on the
// boxed form of the arguments, so it needs no signature: see what each value
// is, put the alias in its place, call the CPU's kernel, turn the results back.

namespace openreg {
namespace {

using torch::jit::Stack;

// Arguments that may be on the CPU by contract: indices, the lengths and batch
// sizes of packed sequences, and the shapes in a nested tensor.
bool may_be_on_cpu(
    const c10::FunctionSchema& schema, const c10::Argument& argument) {
  using OfOperator = std::pair<std::string_view, std::string_view>;
  static const std::set<OfOperator> arguments{
      {"aten::index", "indices"},
      {"aten::index_put", "indices"},
      {"aten::index_put_", "indices"},
      {"aten::_index_put_impl_", "indices"},
      {"aten::_unsafe_index", "indices"},
      {"aten::_unsafe_index_put", "indices"},
      {"aten::_pack_padded_sequence", "lengths"},
      {"aten::_pack_padded_sequence_backward", "batch_sizes"},
      {"aten::_nested_view_from_buffer", "nested_size"},
      {"aten::_nested_view_from_buffer", "nested_strides"},
      {"aten::_nested_view_from_buffer", "offsets"},
      {"aten::_nested_from_padded", "cpu_nested_shape_example"}};
  return arguments.contains({schema.name(), argument.name()});
}

// Raises PyTorch's message for an index that is neither on the CPU nor where
// that is which it indexes.
void check_index(
    const c10::FunctionSchema& schema,
    const c10::Argument& argument,
    const c10::IValue& indexed,
    const at::Tensor& index) {
  if (argument.name() == "indices" && indexed.isTensor()) {
    const auto device = indexed.toTensor().device();
    TORCH_CHECK(
        index.device() == device || !may_be_on_cpu(schema, argument),
        "indices should be either on cpu or on the same device as the indexed "
        "tensor (",
        device,
        ")");
  }
}

}  // namespace

bool is_generator(const c10::Argument& argument) {
  const auto* const optional = argument.type()->castRaw<c10::OptionalType>();
  return optional != nullptr &&
         optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

// [boxed-writes] What an operator writes.
// The schemas of two do not say that they keep a running mean and variance.
bool writes(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  if (const auto* const alias = argument.alias_info()) {
    return alias->isWrite();
  }
  return argument.name().starts_with("running_") &&
         (schema.name() == "aten::native_batch_norm" ||
          schema.name() == "aten::batch_norm_update_stats");
}
// [/boxed-writes]

// [boxed-device] The device that a call is for.
c10::DeviceIndex device_of_call(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  CommonDevice common;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = schema.arguments()[i];
    const bool output = writes(schema, argument);
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (output) {
        common.add_output(tensor);
      } else if (
          tensor.is_privateuseone() || !may_be_on_cpu(schema, argument)) {
        check_index(schema, argument, arguments[0], tensor);
        common.add(tensor);
      }
    });
  }
  if (common.index() >= 0) {
    return common.index();
  }
  for (const auto& argument : arguments) {
    if (argument.isDevice() && argument.toDevice().is_privateuseone()) {
      const auto device = argument.toDevice();
      return device.has_index() ? device.index() : current_device();
    }
  }
  // [/boxed-device]
  // A generator alone led here; it must be of the CPU, as the rest is.
  for (const auto& argument : arguments) {
    if (argument.isGenerator()) {
      at::check_generator<at::CPUGeneratorImpl>(argument.toGenerator());
    }
  }
  return current_device();
}

// [boxed-generator] The CPU's generator that draws for the device's.
c10::IValue host_generator(
    c10::DeviceIndex device, const c10::Argument& argument, c10::IValue value) {
  if (value.isGenerator()) {
    return inner_generator(value.toGenerator(), device);
  }
  if (value.isNone() && is_generator(argument)) {
    return inner_generator(default_generator(device), device);
  }
  return value;
}
// [/boxed-generator]

// [boxed-list] A list keeps its type, with the object that PyTorch looks for.
c10::IValue change_tensors(c10::IValue value, ChangeSides change) {
  if (value.isTensor()) {
    return change(value.toTensor());
  }
  bool has_tensors = false;
  for_each_tensor(value, [&](const at::Tensor&) { has_tensors = true; });
  if (!has_tensors) {
    return value;
  }
  auto type = value.toList().elementType();
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = c10::getTypePtr<std::optional<at::Tensor>>();
  }
  c10::impl::GenericList list(type);
  for (const auto& element : value.toListRef()) {
    list.push_back(change_tensors(element, change));
  }
  return list;
}
// [/boxed-list]

namespace {

// [boxed-packs] Whether arguments are packed into an object of the library.
// It keeps them, so it gets copies: an alias does not own what it shows.
bool packs(const c10::FunctionSchema& schema) {
  return schema.returns().size() == 1 &&
         schema.returns()[0].type()->kind() == c10::TypeKind::ClassType;
}
// [/boxed-packs]

c10::IValue to_alias(
    Aliases& aliases,
    c10::DeviceIndex device,
    const c10::FunctionSchema& schema,
    const c10::Argument& argument,
    c10::IValue value,
    bool contiguous) {
  const bool packed = packs(schema);
  const bool written = writes(schema, argument);
  const bool list = value.isList();
  const auto alias = [&](const at::Tensor& tensor) {
    if (packed && tensor.defined()) {
      return tensor.cpu();
    }
    if (list && tensor._is_zerotensor()) {  // others PyTorch has written out
      return aliases.alias(
          at::zeros({}, tensor.options()).expand(tensor.sizes()));
    }
    return contiguous && !written && tensor.defined()
               ? aliases.alias(
                     tensor.contiguous(tensor.suggest_memory_format()))
               : aliases.alias(tensor, written);
  };
  // [boxed-argument] What takes an argument's place in the CPU's call.
  if (value.isDevice()) {
    return c10::Device(c10::kCPU);
  }
  value = host_generator(device, argument, std::move(value));
  return change_tensors(std::move(value), alias);
  // [/boxed-argument]
}

// What a kernel of the CPU's needs before it is given device tensors.
enum class Needs { kNothing, kContiguous, kDtypes };

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
  Aliases aliases(device);
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[first + i];
    value = to_alias(
        aliases,
        device,
        schema,
        schema.arguments()[i],
        std::move(value),
        needs == Needs::kContiguous);
  }
  run_kernel(name_of(op), device, device, [&] {
    if constexpr (needs == Needs::kDtypes) {
      call_widened(op, stack);
    } else {
      op.redispatchBoxed(c10::DispatchKeySet(key), stack);
    }
  });
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

// [boxed-contiguous] Kernels that take what they read for contiguous.
// Of other strides they read other values, or what is not theirs.
static bool wants_contiguous(const std::string& name) {
  static const std::set<std::string> names{
      "_embedding_bag",
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

// [boxed-keys] One instance for each kind of tensor.
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
  if (!omitted(name)) {
    library.impl(
        name.c_str(), kernel_under(key, name.substr(0, name.find('.'))));
  }
}

// [boxed-register] Every operator with a CPU kernel and none of ours.
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

// [boxed-host-library] FBGEMM is a library for the host alone.
// Its operators have one kernel for all devices, which follows data pointers
// and packs weights into objects of the host's.
static void refuse_host_library(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "openreg: '",
      op.schema().name(),
      "' calls FBGEMM, which needs host tensors. Copy its arguments first, as "
      "x.cpu() does.");
}

static void register_refusals(torch::Library& library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("aten::fbgemm_")) {
      library.impl(
          c10::toString(name).substr(sizeof("aten::") - 1).c_str(),
          torch::CppFunction::makeFromBoxedFunction<&refuse_host_library>());
    }
  }
}
// [/boxed-host-library]

// [boxed-host-bound] One kernel for all devices, which is the CPU's.
// It knows the CPU's name only, follows data pointers as the host may, or, as
// in `addr_`, needs the CPU's own to see that its result is an argument.
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
        "kaiser_window.beta",
        "range.out_",
        "_batch_norm_no_update",
        "_saturate_weight_to_fp16",
        "choose_qparams_optimized"}) {
    register_alias_kernel(library, name, c10::DispatchKey::CPU);
  }
  register_refusals(library);
}
// [/boxed-host-bound]

}  // namespace openreg
