#include "csrc/distributed/checks.h"

#include <algorithm>
#include <array>

namespace openreg {

void check_some(const char* name, const Tensors& tensors) {
  TORCH_CHECK(!tensors.empty(), "openreg: ", name, " of no tensor.");
}

void check_tensors(
    const char* name, const Tensors& inputs, const Tensors& results) {
  Tensors tensors = inputs;
  tensors.insert(tensors.end(), results.begin(), results.end());
  check_some(name, tensors);
  const auto device = tensors.front().device();
  for (const auto& tensor : tensors) {
    TORCH_CHECK(
        tensor.is_privateuseone() && tensor.layout() == c10::kStrided,
        "openreg: ",
        name,
        " takes plain tensors of the device, but got one of layout ",
        tensor.layout(),
        " on ",
        tensor.device(),
        ".");
    TORCH_CHECK(
        tensor.device() == device,
        "openreg: ",
        name,
        " takes tensors of one device, but got some on ",
        device,
        " and on ",
        tensor.device(),
        ".");
    TORCH_CHECK(
        tensor.is_contiguous(tensor.suggest_memory_format()) &&
            !tensor.is_conj() && !tensor.is_neg(),
        "openreg: ",
        name,
        " takes contiguous tensors, but got sizes ",
        tensor.sizes(),
        " with strides ",
        tensor.strides(),
        ". Call contiguous() first.");
  }
  for (const auto& tensor : results) {
    tensor.mutable_data_ptr();
  }
}

// Both are named, since the wrong one may be either.
void check_dtype(
    const char* name, const at::Tensor& one, const at::Tensor& other) {
  TORCH_CHECK(
      one.scalar_type() == other.scalar_type(),
      "openreg: ",
      name,
      " takes tensors of one dtype, but got ",
      one.scalar_type(),
      " and ",
      other.scalar_type(),
      ".");
}

static void check_count(
    const char* name, const Tensors& tensors, int64_t count) {
  TORCH_CHECK(
      static_cast<int64_t>(tensors.size()) == count,
      "openreg: ",
      name,
      " takes a list of ",
      count,
      " tensors here, but got ",
      tensors.size(),
      ".");
}

void check_exchange(
    const char* name,
    const Tensors& inputs,
    const Tensors& outputs,
    int64_t count) {
  for (const auto* const tensors : {&inputs, &outputs}) {
    check_count(name, *tensors, count);
    for (const auto& tensor : *tensors) {
      check_dtype(name, inputs[0], tensor);
    }
  }
}

void check_alike(
    const char* name,
    const at::Tensor& like,
    const Tensors& tensors,
    int64_t count) {
  check_count(name, tensors, count);
  for (const auto& tensor : tensors) {
    check_dtype(name, like, tensor);
    TORCH_CHECK(
        like.sizes() == tensor.sizes(),
        "openreg: ",
        name,
        " takes tensors of one size, but got ",
        like.sizes(),
        " and ",
        tensor.sizes(),
        ".");
  }
}

void check_parts(
    const char* name,
    const at::Tensor& whole,
    const at::Tensor& part,
    int64_t count) {
  check_dtype(name, whole, part);
  TORCH_CHECK(
      whole.numel() == part.numel() * count,
      "openreg: ",
      name,
      " in a group of ",
      count,
      " takes that many times the elements of ",
      part.sizes(),
      ", but got ",
      whole.sizes(),
      ".");
}

// What Gloo can add up.
void check_reduction(
    const char* name, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const auto dtype = tensor.scalar_type();
  using c10::ScalarType;
  constexpr std::array known{
      ScalarType::Float,
      ScalarType::Double,
      ScalarType::Half,
      ScalarType::BFloat16,
      ScalarType::Char,
      ScalarType::Byte,
      ScalarType::Bool,
      ScalarType::Int,
      ScalarType::Long};
  const bool bits = op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR ||
                    op == c10d::ReduceOp::BXOR;
  TORCH_CHECK_NOT_IMPLEMENTED(
      std::ranges::find(known, dtype) != known.end() &&
          (!bits || c10::isIntegralType(dtype, /*includeBool=*/true)) &&
          op != c10d::ReduceOp::PREMUL_SUM,
      "openreg: ",
      name,
      " does not have this operator for ",
      dtype,
      ". There are SUM, AVG, PRODUCT, MIN and MAX for float16, bfloat16, "
      "float32, float64, int8, uint8, int32, int64 and bool, and BAND, BOR and "
      "BXOR for all of these but the floating ones.");
}

}  // namespace openreg
