#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Operators.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/alias.h"

// The fused cells of LSTM and GRU. PyTorch's CPU has none, it composes them,
// but sends every PrivateUse1 device here; and the CPU's kernel for a whole
// LSTM layer, to which it sends only its own tensors. Equations: torch.nn.LSTM
// and torch.nn.GRU. Shapes: gates (batch, 4*hidden) or (batch, 3*hidden),
// states (batch, hidden), biases one-dimensional.

namespace openreg {
namespace {

using at::Tensor;
using Bias = std::optional<Tensor>;

Tensor biased(const Tensor& gates, const Bias& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

// Gates lie side by side in the second dimension.
std::vector<Tensor> gates_of(const Tensor& gates, int64_t count) {
  TORCH_CHECK(
      gates.dim() == 2 && gates.size(1) % count == 0,
      "expected ",
      count,
      " gates of one size, side by side in the second of two dimensions, but "
      "got a tensor of shape ",
      gates.sizes());
  return gates.chunk(count, 1);
}
Tensor concat(at::TensorList gates) {
  return at::cat(gates, 1);
}

// d sigmoid(x) and d tanh(x), in terms of the function's value y.
Tensor sigmoid_slope(const Tensor& y) {
  return y * (1 - y);
}
Tensor tanh_slope(const Tensor& y) {
  return 1 - y * y;
}

// [recurrent-lstm] i, f, g, o are input, forget, cell and output gates.
// The last result keeps their values for the backward pass.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const Bias& input_bias,
    const Bias& hidden_bias) {
  const auto gates = gates_of(
      biased(input_gates, input_bias) + biased(hidden_gates, hidden_bias), 4);
  const auto i = gates[0].sigmoid();
  const auto f = gates[1].sigmoid();
  const auto g = gates[2].tanh();
  const auto o = gates[3].sigmoid();
  const auto cy = f * cx + i * g;
  return {o * cy.tanh(), cy, concat({i, f, g, o})};
}
// [/recurrent-lstm]

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const Bias& grad_hy,
    const Bias& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias) {
  const auto or_zero = [&](const Bias& grad) {
    return grad.has_value() && grad->defined() ? *grad : at::zeros_like(cy);
  };
  const auto gates = gates_of(workspace, 4);
  const auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const auto grad_h = or_zero(grad_hy);
  const auto squashed = cy.tanh();
  const auto grad_c = grad_h * o * tanh_slope(squashed) + or_zero(grad_cy);
  const auto grad_gates = concat(
      {grad_c * g * sigmoid_slope(i),
       grad_c * cx * sigmoid_slope(f),
       grad_c * i * tanh_slope(g),
       grad_h * squashed * sigmoid_slope(o)});
  return {grad_gates, grad_c * f, has_bias ? grad_gates.sum(0) : Tensor()};
}

// r, z, n are reset, update and new gates; `hidden` is n's hidden part before
// the reset gate, which the backward pass needs too.
std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hx,
    const Bias& input_bias,
    const Bias& hidden_bias) {
  const auto in = gates_of(biased(input_gates, input_bias), 3);
  const auto hid = gates_of(biased(hidden_gates, hidden_bias), 3);
  const auto r = (hid[0] + in[0]).sigmoid();
  const auto z = (hid[1] + in[1]).sigmoid();
  const auto n = (in[2] + r * hid[2]).tanh();
  return {(hx - n) * z + n, concat({r, z, n, hx, hid[2]})};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto saved = gates_of(workspace, 5);
  const auto &r = saved[0], &z = saved[1], &n = saved[2];
  const auto &hx = saved[3], &hidden = saved[4];
  const auto grad_z = grad * (hx - n) * sigmoid_slope(z);
  const auto grad_n = grad * (1 - z) * tanh_slope(n);
  const auto grad_r = grad_n * hidden * sigmoid_slope(r);
  const auto grad_in = concat({grad_r, grad_z, grad_n});
  const auto grad_hid = concat({grad_r, grad_z, grad_n * r});
  return {
      grad_in,
      grad_hid,
      grad * z,
      has_bias ? grad_in.sum(0) : Tensor(),
      has_bias ? grad_hid.sum(0) : Tensor()};
}

// What the kernel for a layer takes: float32 all, and no projection.
bool runs_by_layer(
    const Tensor& input, at::TensorList hx, at::TensorList params) {
  const auto serves = [](const Tensor& tensor) {
    return tensor.is_privateuseone() && tensor.scalar_type() == at::kFloat;
  };
  return at::globalContext().userEnabledMkldnn() &&
         c10::impl::tls_is_dispatch_key_excluded(
             c10::DispatchKey::AutocastPrivateUse1) &&
         serves(input) && input.numel() != 0 && hx.size() == 2 &&
         // Of the layer's workspace Meta tells another shape (torch 2.13).
         capture_of(current_stream(input.device().index())) == nullptr &&
         hx[0].sizes() == hx[1].sizes() && std::ranges::all_of(hx, serves) &&
         std::ranges::all_of(params, serves);
}

// [recurrent-layers] A composite operator that is worth a kernel of its own.
// PyTorch composes an LSTM of one cell a step, but on the CPU, for float32, of
// one kernel a layer. That one serves us too, gradients and all.
template <typename... Options>
std::tuple<Tensor, Tensor, Tensor> lstm(
    const Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    Options... options) {
  if (!runs_by_layer(input, hx, params)) {
    return at::native::lstm(input, hx, params, options...);
  }
  Tensor output, hy, cy;
  at::native::lstm_mkldnn_stub(
      at::kCPU, output, hy, cy, input, hx, params, options...);
  return {output, hy, cy};
}

// Biases or not, layers, dropout, training, both directions, batch first.
constexpr auto lstm_input = &lstm<bool, int64_t, double, bool, bool, bool>;
// [/recurrent-layers]

}  // namespace

// [recurrent-register] The override is registered under autograd, too.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  if (full_operator_set()) {
    library.impl("lstm.input", lstm_input);
  }
}
// [/recurrent-register]

void register_recurrent(torch::Library& library) {
  library.impl("lstm.input", lstm_input);
  namespace op = at::_ops;
  register_on_aliases<op::_thnn_fused_lstm_cell, &lstm_cell>(library);
  register_on_aliases<
      op::_thnn_fused_lstm_cell_backward_impl,
      &lstm_cell_backward>(library);
  register_on_aliases<op::_thnn_fused_gru_cell, &gru_cell>(library);
  register_on_aliases<op::_thnn_fused_gru_cell_backward, &gru_cell_backward>(
      library);
}

}  // namespace openreg
