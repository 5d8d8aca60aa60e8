#include <ATen/autocast_mode.h>
#include <torch/library.h>

// Mixed precision is a dispatch key before the backend's: it casts the
// arguments and calls the operator again. PyTorch says which operator is cast
// how, in lists that every backend shares.

namespace openreg {
namespace {

// PyTorch's lists name the types of an operator as its own sources do.
using namespace at;

// [autocast-fallthrough] Operators in no list skip the autocast key.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
// [/autocast-fallthrough]

// [autocast-lists] The five policies, each with PyTorch's list of operators.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FP32_SET_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION);
  AT_FORALL_FP32(FP32);
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_DTYPE);
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE);
  AT_FORALL_PROMOTE(PROMOTE);
}
// [/autocast-lists]

// [autocast-banned] The one operator that autocast refuses.
at::Tensor refuse_binary_cross_entropy(
    const at::Tensor& /*input*/,
    const at::Tensor& /*target*/,
    const std::optional<at::Tensor>& /*weight*/,
    int64_t /*reduction*/) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are "
      "unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy "
      "layer.\n"
      "In this case, combine the two layers using "
      "torch.nn.functional.binary_cross_entropy_with_logits\n"
      "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
      "BCEWithLogits are\n"
      "safe to autocast.");
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  m.impl("binary_cross_entropy", refuse_binary_cross_entropy);
}
// [/autocast-banned]

}  // namespace
}  // namespace openreg
