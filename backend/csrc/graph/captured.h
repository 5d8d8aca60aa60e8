#pragma once

#include <exception>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/aten/forms/alias.h"
#include "csrc/graph/capture.h"

// Kernels that make their results, in a form that a graph can keep. What the
// results look like is told by PyTorch's kernels under the key Meta, whose
// tensors have a shape and no data.

namespace openreg {

// An uninitialized tensor of the same shape, strides and dtype elsewhere.
// Raises NotImplementedError for one that is not plain.
at::Tensor empty_like_on(const at::Tensor& tensor, c10::Device device);

// What Meta's kernel gets for a tensor. A number of the host's stays as it is,
// since only its dtype counts.
at::Tensor on_meta(const at::Tensor& tensor);
inline std::optional<at::Tensor> on_meta(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::optional(on_meta(*t)) : std::nullopt;
}
template <typename T>
const T& on_meta(const T& value) {
  return value;
}

// Raises NotImplementedError: without a run of `name` nobody knows what its
// results look like, and `error` says why.
[[noreturn]] void refuse_capture(
    std::string_view name, const std::exception& error);

// Copies what a kernel returned to where the result of the capture is.
void copy_result(const at::Tensor& to, const at::Tensor& result);

// [captured-results] Results in a capture get their shapes from Meta kernels.
inline at::Tensor empty_like_on(
    const c10::Device& device, const at::Tensor& shape) {
  return empty_like_on(shape, device);
}
template <typename... T>
std::tuple<T...> empty_like_on(
    const c10::Device& device, const std::tuple<T...>& shapes) {
  return std::apply(
      [&](const auto&... shape) {
        return std::tuple(empty_like_on(shape, device)...);
      },
      shapes);
}
// [/captured-results]

// Where each run puts what it made: the aliases of the results.
struct ResultsOf {
  std::vector<at::Tensor> aliases;

  explicit ResultsOf(const at::Tensor& result) : aliases{own(result)} {}
  template <typename... T>
  explicit ResultsOf(const std::tuple<T...>& results) {
    std::apply(
        [&](const auto&... each) { (aliases.push_back(own(each)), ...); },
        results);
  }
  void fill(const at::Tensor& result) const {
    copy_result(aliases[0], result);
  }
  template <typename... T>
  void fill(const std::tuple<T...>& results) const {
    size_t next = 0;
    std::apply(
        [&](const auto&... each) { (copy_result(aliases[next++], each), ...); },
        results);
  }
};

// [captured-kernel] Records a kernel that has a C++ signature.
template <typename Kernel, typename... Args>
auto capture_on_aliases(const Call& call, Kernel kernel, const Args&... args) {
  const auto shapes = [&] {
    const KernelScope below_autograd(host_memory);
    try {
      return kernel(on_meta(args)...);
    } catch (const std::exception& error) {
      refuse_capture(call.name, error);
    }
  }();
  const c10::Device here(c10::kPrivateUse1, call.device);
  auto results = empty_like_on(here, shapes);
  const auto run = [kernel, to = ResultsOf(results)](const auto&... from) {
    to.fill(kernel(from...));
  };
  launch_on_aliases(call, Runs::kQueued, run, args...);
  return results;
}
// [/captured-kernel]

// Calls the CPU's kernel of an operator on the arguments of a stack.
using CallOnHost =
    void (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same for an operator by its schema: puts the results on the stack in the
// place of the arguments, and leaves the call to the graph. But for tensors,
// which are the device's, the arguments are those of the CPU's kernel.
void capture_call(
    Capture& capture,
    const Call& call,
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    CallOnHost kernel);

}  // namespace openreg
