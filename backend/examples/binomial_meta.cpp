// What PyTorch 2.13 lacks for one operator: shapes and dtypes without values.

#include <ATen/Generator.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace {

// [binomial-meta-kernel] The result is shaped like the counts.
at::Tensor binomial_meta(
    const at::Tensor& count, const at::Tensor&, std::optional<at::Generator>) {
  return at::empty_like(count);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("binomial", &binomial_meta);
}
// [/binomial-meta-kernel]

}  // namespace

// expect: ok
