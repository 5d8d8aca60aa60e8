#include <array>
#include <optional>
#include <tuple>

#include <ATen/Operators.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/alias.h"

// Scaled dot product attention in one kernel. PyTorch asks a stub whether the
// device has one for these arguments; if not, it composes the operator of
// products and a softmax. Shapes: query (batch, heads, length, size), key and
// value alike with a length of their own; see
// torch.nn.functional.scaled_dot_product_attention.

namespace openreg {
namespace {

using at::Tensor;
using Bias = std::optional<Tensor>;

// Not so the tensors of a compiler, of vmap and of torch.func.
bool has_memory(const Tensor& tensor) {
  const auto keys = tensor.key_set();
  return tensor.has_storage() && !keys.has(c10::DispatchKey::Python) &&
         !keys.has(c10::DispatchKey::Functionalize);
}

// The fused kernel takes what the CPU's own fused kernel takes. It has no
// gradient of the bias, which the composed form has, and no nested arguments;
// and it cannot be traced, so a compiler gets the composed form.
template <typename... Options>
int64_t choose(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Bias& bias,
    Options... options) {
  // [attention-choice] The arguments decide which form of attention runs.
  if (!full_operator_set() || query.is_nested() || !has_memory(query) ||
      !has_memory(key) || !has_memory(value)) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  const bool bias_learns = at::GradMode::is_enabled() && bias.has_value() &&
                           bias->defined() && bias->requires_grad();
  const auto on_cpu = at::_fused_sdp_choice(
      borrow(query), borrow(key), borrow(value), borrow(bias), options...);
  const bool fused = on_cpu != static_cast<int64_t>(at::SDPBackend::math);
  return static_cast<int64_t>(
      fused && !bias_learns ? at::SDPBackend::overrideable
                            : at::SDPBackend::math);
  // [/attention-choice]
}

// Dropout, causal or not, scale, grouped queries.
constexpr auto choose_fused =
    &choose<double, bool, std::optional<double>, bool>;

// Output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed,
// philox_offset, debug_attn_mask.
using Fused = at::_ops::_scaled_dot_product_fused_attention_overrideable;
using Outputs = c10::guts::function_traits<Fused::schema>::return_type;

// The schema has room for what other devices keep: lengths of sequences that
// are packed, and the random state of a dropout. We leave that empty.
Outputs attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Bias& bias,
    double dropout,
    bool is_causal,
    bool /*return_debug_mask*/,
    std::optional<double> scale) {
  // [attention-forward] The CPU's fused kernel, on aliases.
  auto [output, logsumexp] = launch_on_aliases(
      {common_device(query, key, value, bias), full_name<Fused>},
      &at::_scaled_dot_product_flash_attention_for_cpu,
      query,
      key,
      value,
      dropout,
      is_causal,
      bias,
      scale);
  // [/attention-forward]
  const auto none = at::empty({0}, query.options().dtype(at::kLong));
  return {
      output,
      logsumexp,
      none,
      none,
      query.sym_size(2),
      key.sym_size(2),
      none,
      none,
      none};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    std::array<bool, 4> /*grad_input_mask*/,
    const Tensor& output,
    const Tensor& logsumexp,
    const Tensor& /*cum_seq_q*/,
    const Tensor& /*cum_seq_k*/,
    c10::SymInt /*max_q*/,
    c10::SymInt /*max_k*/,
    double dropout,
    bool is_causal,
    const Tensor& /*philox_seed*/,
    const Tensor& /*philox_offset*/,
    std::optional<double> scale) {
  // [attention-backward] Gradients of query, key and value.
  // The CPU's kernel takes the numbers of a row for neighbors.
  const auto rows = [](const Tensor& tensor) {
    return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
  };
  const auto [grad_query, grad_key, grad_value] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad,
          rows(query),
          rows(key),
          rows(value),
          rows(output),
          logsumexp,
          dropout,
          is_causal,
          bias.defined() ? std::optional(bias) : std::nullopt,
          scale);
  return {grad_query, grad_key, grad_value, Tensor()};
  // [/attention-backward]
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_fused_sdp_choice", choose_fused);
  library.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  register_on_aliases<
      at::_ops::_scaled_dot_product_fused_attention_overrideable_backward,
      &attention_backward>(library);
}

}  // namespace openreg

// [attention-stub] PyTorch asks this stub which form of attention to run.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, openreg::choose_fused)
}
// [/attention-stub]
