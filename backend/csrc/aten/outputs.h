#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

namespace openreg {

// Not every kernel of the CPU minds the strides of its `out=`. Some write as if
// it were contiguous: to the wrong places, and beyond it. So an `out=` that is
// not contiguous is exchanged for one that is, and gets what that one got.
class OrderedOutputs {
 public:
  // The arguments of `schema` lie on top of `stack`.
  OrderedOutputs(const c10::FunctionSchema& schema, torch::jit::Stack* stack);
  // Now its results do.
  void give_back(
      const c10::FunctionSchema& schema, torch::jit::Stack* stack) const;

 private:
  struct Pair {
    at::Tensor given;
    at::Tensor ordered;
  };
  c10::SmallVector<Pair, 2> pairs_;
};

}  // namespace openreg
