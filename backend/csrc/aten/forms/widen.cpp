#include "csrc/aten/forms/widen.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include "csrc/aten/core/arguments.h"

// A kernel library lacks dtypes. Where the result is defined as that of the
// next dtype which it has, rounded, the operator runs in that one.

namespace openreg {
namespace {

using c10::ScalarType;
using torch::jit::Stack;

struct Widening {
  std::unordered_set<ScalarType> lacks;
  ScalarType has;
  std::string operators;
};

// [widen-table] The missing dtypes, the dtype to use, and the operators.
const std::vector<Widening>& widenings() {
  using enum ScalarType;
  static const auto* const table = new std::vector<Widening>{
      {{ComplexHalf},
       Float,
       " acos acosh angle asin asinh atan atanh cos cosh div exp lerp log "
       "logaddexp pow prod rsqrt sigmoid sigmoid_backward sin sinh sqrt sum "
       "tan tanh tanh_backward trace _fft_c2c _fft_c2r "},
      {{Half, BFloat16},
       Float,
       " avg_pool3d avg_pool3d_backward multi_margin_loss "
       "multi_margin_loss_backward multilabel_margin_loss_backward "
       "multilabel_margin_loss_forward _upsample_bicubic2d_aa "
       "_upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa "
       "_upsample_bilinear2d_aa_backward "},
      {{Half}, Float, " rrelu_with_noise _fft_r2c "},
      {{Byte, Char, Short, Int, Long}, Double, " histc "},
      {{Bool}, Byte, " abs trace "}};
  return *table;
}
// [/widen-table]

// The rows for an operator. Of "aten::acos_" the table has "acos".
auto rows_of(std::string_view name) {
  using Rows = std::unordered_multimap<std::string_view, const Widening*>;
  static const auto* const rows = [] {
    auto* const by_name = new Rows;
    for (const auto& row : widenings()) {
      for (const auto word : std::views::split(row.operators, ' ')) {
        by_name->emplace(std::string_view(word.begin(), word.end()), &row);
      }
    }
    return by_name;
  }();
  name.remove_prefix(name.rfind(':') + 1);
  name.remove_suffix(name.ends_with('_') ? 1 : 0);
  const auto [first, last] = rows->equal_range(name);
  return std::ranges::subrange(first, last);
}

// The dtype that a kernel would compute in. One that is asked for is not ours
// to choose.
ScalarType common_dtype(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> read;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& argument = schema.arguments()[i];
    if (argument.name() == "dtype" && !values[i].isNone()) {
      return ScalarType::Undefined;
    }
    if (!argument.is_out()) {
      for_each_tensor(
          values[i], [&](const at::Tensor& t) { read.push_back(t); });
    }
  }
  // Quantized numbers have no dtype in common with others.
  const bool quantized = std::ranges::any_of(
      read, [](const auto& t) { return c10::isQIntType(t.scalar_type()); });
  return quantized ? ScalarType::Undefined : at::native::result_type(read);
}

// What is of `from`, or complex of it, converted to the same of `to`.
at::Tensor convert(const at::Tensor& tensor, ScalarType from, ScalarType to) {
  const auto type = tensor.scalar_type();
  return c10::toRealValueType(type) != from ? tensor
         : c10::isComplexType(type)         ? tensor.to(c10::toComplexType(to))
                                            : tensor.to(to);
}

// [widen-call] Convert the arguments, compute, round the results.
void call_in(
    ScalarType wide,
    ScalarType narrow,
    const c10::OperatorHandle& op,
    Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    (*stack)[first + i] =
        change_tensors((*stack)[first + i], [&](const at::Tensor& tensor) {
          const auto converted = convert(tensor, narrow, wide);
          if (writes(op.schema(), arguments[i])) {
            written.emplace_back(tensor, converted);
          }
          return converted;
        });
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (const auto& [tensor, converted] : written) {
    if (!tensor.is_same(converted)) {
      tensor.resize_(converted.sizes()).copy_(converted);
    }
  }
  for (size_t i = first; i < stack->size(); ++i) {
    (*stack)[i] = change_tensors((*stack)[i], [&](const at::Tensor& result) {
      for (const auto& [tensor, converted] : written) {
        if (converted.is_same(result)) {
          return tensor;
        }
      }
      return convert(result, wide, narrow);
    });
  }
}
// [/widen-call]

}  // namespace

bool lacks_dtypes(std::string_view name) {
  return !rows_of(name).empty();
}

void call_widened(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  for (const auto& [name, row] : rows_of(schema.name())) {
    const auto narrow = common_dtype(
        schema, torch::jit::last(*stack, schema.arguments().size()));
    if (row->lacks.count(narrow) != 0) {
      return call_in(row->has, c10::toRealValueType(narrow), op, stack);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// [widen-fft] A Fourier transform of half precision.
// PyTorch's composites let it in only if they know the name of the device.
static void fft(const c10::OperatorHandle& op, Stack* stack) {
  auto& self = (*stack)[stack->size() - op.schema().arguments().size()];
  const bool half = self.toTensor().scalar_type() == at::kHalf;
  if (half) {
    self = self.toTensor().to(at::kFloat);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (half) {
    stack->back() = convert(stack->back().toTensor(), at::kFloat, at::kHalf);
  }
}

static void register_fft(torch::Library& library) {
  for (const std::string kind : {"", "i", "r", "ir", "h", "ih"}) {
    for (const std::string dimensions : {"", "2", "n"}) {
      library.impl(
          ("fft_" + kind + "fft" + dimensions).c_str(),
          torch::CppFunction::makeFromBoxedFunction<&fft>());
    }
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_fft(library);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  register_fft(library);
}
// [/widen-fft]

}  // namespace openreg
