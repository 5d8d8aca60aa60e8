#include "csrc/aten/outputs.h"

#include <algorithm>

#include <ATen/MemoryOverlap.h>

#include "csrc/aten/boxed.h"
#include "csrc/aten/parts.h"

namespace openreg {
namespace {

bool is_strided_output(
    const c10::Argument& argument, const c10::IValue& value) {
  if (!argument.is_out() || !value.isTensor()) {
    return false;
  }
  const auto& tensor = value.toTensor();
  return tensor.defined() && tensor.is_privateuseone() && !has_parts(tensor) &&
         !tensor.is_contiguous();
}

}  // namespace

// A copy would hide that a kernel reads what it has written.
static void check_overlap(
    const at::Tensor& output, c10::ArrayRef<c10::IValue> arguments) {
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !has_parts(tensor)) {
        at::assert_no_partial_overlap(output, tensor);
      }
    });
  }
}

// [outputs-ordered] What is not contiguous is written by a copy.
// Kernels that draw go by the order of memory, and draw other numbers in it.
OrderedOutputs::OrderedOutputs(
    const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  const auto& arguments = schema.arguments();
  const auto first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& value = (*stack)[first + i];
    if (is_strided_output(arguments[i], value) &&
        std::none_of(arguments.begin(), arguments.end(), &is_generator)) {
      const auto given = value.toTensor();
      check_overlap(given, torch::jit::last(*stack, arguments.size()));
      value = given.clone(at::MemoryFormat::Contiguous);
      pairs_.push_back({given, value.toTensor()});
    }
  }
}

void OrderedOutputs::give_back(
    const c10::FunctionSchema& schema, torch::jit::Stack* stack) const {
  for (const auto& [given, ordered] : pairs_) {
    if (given.sizes() != ordered.sizes()) {
      given.resize_(ordered.sizes());
    }
    given.copy_(ordered);
    const auto results = stack->size() - schema.returns().size();
    for (size_t i = results; i < stack->size(); ++i) {
      auto& value = (*stack)[i];
      if (value.isTensor() && value.toTensor().is_same(ordered)) {
        value = given;
      }
    }
  }
}
// [/outputs-ordered]

}  // namespace openreg
