#include "csrc/aten/core/registry.h"

#include <cstdlib>
#include <string>

#include <c10/util/Exception.h>

namespace openreg {

static const std::string& operator_set() {
  static const auto* const set = [] {
    const char* const value = std::getenv("OPENREG_OPERATORS");
    return new std::string(
        value != nullptr ? value
        : has_full_set   ? "full"
                         : "minimal");
  }();
  return *set;
}

bool full_operator_set() {
  return operator_set() != "minimal";
}

void check_registration() {
  TORCH_CHECK(
      operator_set() == "full" || operator_set() == "minimal",
      "OPENREG_OPERATORS is '",
      operator_set(),
      "'; expected 'full' or 'minimal'");
  TORCH_CHECK(
      has_full_set || operator_set() == "minimal",
      "OPENREG_OPERATORS is 'full', but this package has the minimal set "
      "alone. Build it without OPENREG_MINIMAL.");
}

}  // namespace openreg
