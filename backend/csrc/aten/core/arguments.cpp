#include "csrc/aten/core/arguments.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>

#include "csrc/runtime/generator.h"

namespace openreg {
namespace {

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

void check_same(
    const std::optional<c10::Device>& one,
    const std::optional<c10::Device>& two) {
  TORCH_CHECK(
      !one.has_value() || !two.has_value() || *one == *two,
      "Expected all tensors to be on the same device, but found at least two "
      "devices, ",
      *one,
      " and ",
      *two,
      "!");
}

// Not every kernel minds the strides of its `out=`. Some write as if it were
// contiguous: to the wrong places, and beyond it. `tril` goes by the strides of
// dimensions of one element, too, which PyTorch does not look at.
bool is_strided_output(
    const c10::Argument& argument, const c10::IValue& value) {
  const auto tensor =
      argument.is_out() && value.isTensor() ? value.toTensor() : at::Tensor();
  if (!tensor.defined() ||
      !tensor.key_set().has(c10::DispatchKey::PrivateUse1)) {
    return false;
  }
  int64_t contiguous = 1;
  for (auto dim = tensor.dim(); dim-- > 0;) {
    if (tensor.stride(dim) != contiguous) {
      return true;
    }
    contiguous *= std::max<int64_t>(tensor.size(dim), 1);
  }
  return false;
}

}  // namespace

// [arguments-devices] Two devices in one call are an error, as on any backend.
void CommonDevice::add(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) {
    return;
  }
  const auto device = tensor.device();
  if (C10_LIKELY(device.is_privateuseone())) {
    check_same(device_, device);
    device_ = device;
  } else if (tensor.dim() != 0 || !device.is_cpu() || written) {
    elsewhere_ = device;
  }
  check_same(device_, elsewhere_);
}
// [/arguments-devices]

// [arguments-writes] Whether an operator writes this argument.
// Two schemas do not say that the operator updates running statistics.
bool writes(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  if (const auto* const alias = argument.alias_info()) {
    return alias->isWrite();
  }
  return argument.name().starts_with("running_") &&
         (schema.name() == "aten::native_batch_norm" ||
          schema.name() == "aten::batch_norm_update_stats");
}
// [/arguments-writes]

// [arguments-device] The device that a call is for.
c10::DeviceIndex device_of_call(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  CommonDevice common;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = schema.arguments()[i];
    const bool written = writes(schema, argument);
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.is_privateuseone() || !may_be_on_cpu(schema, argument)) {
        check_index(schema, argument, arguments[0], tensor);
        common.add(tensor, written);
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
  // A generator alone led here; it must be of the CPU, as the rest is.
  for (const auto& argument : arguments) {
    if (argument.isGenerator()) {
      at::check_generator<at::CPUGeneratorImpl>(argument.toGenerator());
    }
  }
  // [/arguments-device]
  return current_device();
}

// [arguments-generator] The CPU generator inside the device's, for the kernel.
bool is_generator(const c10::Argument& argument) {
  const auto* const optional = argument.type()->castRaw<c10::OptionalType>();
  return optional != nullptr &&
         optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

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
// [/arguments-generator]

// [arguments-list] Exchanges the tensors in a value; a list keeps its type.
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
// [/arguments-list]

// [arguments-overlap] A copy of one argument does not see writes to another.
// Those that are the same tensor get one copy; what overlaps in part raises
// PyTorch's own message.
void refuse_partial_overlap(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> read;
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& tensors = writes(schema, schema.arguments()[i]) ? written : read;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.defined()) {
        tensors.push_back(tensor);
      }
    });
  }
  for (auto it = written.begin(); it != written.end(); ++it) {
    for (const auto& other : read) {
      at::assert_no_partial_overlap(*it, other);
    }
    std::for_each(std::next(it), written.end(), [&](const at::Tensor& other) {
      at::assert_no_partial_overlap(*it, other);
    });
  }
}
// [/arguments-overlap]

// [arguments-outputs] An output that is not contiguous is written by a copy.
// Kernels that draw fill memory in its order, so strides change the numbers.
Exchanged order_outputs(
    const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  Exchanged exchanged;
  const auto& arguments = schema.arguments();
  if (arguments.empty() || !arguments.back().is_out()) {
    return exchanged;  // outputs come last
  }
  const auto first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& value = (*stack)[first + i];
    if (is_strided_output(arguments[i], value) &&
        std::none_of(arguments.begin(), arguments.end(), &is_generator)) {
      // A copy would hide that a kernel reads what it has written.
      refuse_partial_overlap(
          schema, torch::jit::last(*stack, arguments.size()));
      const auto given = value.toTensor();
      value = given.clone(at::MemoryFormat::Contiguous);
      exchanged.emplace_back(given, value.toTensor());
    }
  }
  return exchanged;
}

void give_back(const Exchanged& exchanged, c10::ArrayRef<c10::IValue> results) {
  for (const auto& [given, ordered] : exchanged) {
    if (given.sizes() != ordered.sizes()) {
      given.resize_(ordered.sizes());
    }
    given.copy_(ordered);
    for (const auto& result : results) {
      if (result.isTensor() && result.toTensor().is_same(ordered)) {
        const_cast<c10::IValue&>(result) = given;
      }
    }
  }
}
// [/arguments-outputs]

}  // namespace openreg
