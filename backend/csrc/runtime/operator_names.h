#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/runtime/launch.h"

// Operators' names, as traces and errors have them.

namespace openreg {

// The operator's name in full, as the dispatcher prints it: "aten::add.Tensor".
// It is made and kept only while somebody listens, else it lacks the overload.
const char* name_of(const c10::OperatorHandle& op);

// The same of a class of at::_ops, whose schema begins with the name.
template <typename Op>
constexpr auto letters = [] {
  constexpr std::string_view space = "aten::";
  constexpr std::string_view schema = Op::schema_str;
  constexpr auto length = schema.find('(');
  std::array<char, space.size() + length + 1> name{};
  std::ranges::copy(space, name.begin());
  std::ranges::copy_n(schema.begin(), length, name.begin() + space.size());
  return name;
}();
template <typename Op>
constexpr const char* full_name = letters<Op>.data();
// Without "aten::", as it is registered.
template <typename Op>
constexpr std::string_view short_name(
    letters<Op>.data() + sizeof("aten::") - 1,
    letters<Op>.size() - sizeof("aten::"));

// [operator-names-loop] The call whose loop this thread runs, or NULL.
// One loop serves several operators, and PyTorch does not tell it which.
struct LoopOf {
  explicit LoopOf(const Call& call) : outer(std::exchange(current, &call)) {}
  ~LoopOf() {
    current = outer;
  }
  const Call* const outer;
  static constinit thread_local const Call* current
      __attribute__((tls_model("initial-exec")));
};
// [/operator-names-loop]

}  // namespace openreg
