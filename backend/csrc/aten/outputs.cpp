#include <algorithm>

#include "csrc/aten/boxed.h"
#include "csrc/aten/parts.h"

// Not every kernel of the CPU minds the strides of its `out=`. Some write as if
// it were contiguous: to the wrong places, and beyond it. So an `out=` that is
// not contiguous is exchanged for one that is, and gets what that one got.

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

// [outputs-ordered] What is not contiguous is written by a copy.
// Kernels that draw go by the order of memory, and draw other numbers in it.
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
// [/outputs-ordered]

}  // namespace openreg
