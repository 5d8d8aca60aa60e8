#include "csrc/aten/registry.h"

#include <cstdlib>
#include <string>

#include <c10/util/Exception.h>

namespace openreg {

bool full_operator_set() {
  static const bool full = [] {
    const char* const value = std::getenv("OPENREG_OPERATORS");
    const std::string_view set = value == nullptr ? "full" : value;
    TORCH_CHECK(
        set == "full" || set == "minimal",
        "OPENREG_OPERATORS is '",
        set,
        "'; expected 'full' or 'minimal'");
    return set == "full";
  }();
  return full;
}

bool omitted(std::string_view name) {
  static const std::string omit = [] {
    const char* const value = std::getenv("OPENREG_OMIT");
    return std::string(value == nullptr ? "" : value);
  }();
  return name == omit;
}

} // namespace openreg
