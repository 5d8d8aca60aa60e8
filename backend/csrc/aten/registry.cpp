#include "csrc/aten/registry.h"

#include <cstdlib>
#include <string>

#include <c10/util/Exception.h>

namespace openreg {
namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

const std::string& operator_set() {
  static const auto* const set = new std::string(
      variable("OPENREG_OPERATORS", has_full_set ? "full" : "minimal"));
  return *set;
}

// The kernel to leave out, and whether a registration has met its name.
struct Omission {
  std::string name = variable("OPENREG_OMIT", "");
  bool met = name.empty();
};

Omission& omission() {
  static auto* const instance = new Omission;
  return *instance;
}

}  // namespace

bool full_operator_set() {
  return operator_set() != "minimal";
}

bool omitted(std::string_view name) {
  const bool omit = name == omission().name;
  omission().met |= omit;
  return omit;
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
  TORCH_CHECK(
      omission().met,
      "OPENREG_OMIT is '",
      omission().name,
      "'; expected the name of a kernel of the device as registered, such as "
      "'empty.memory_format'");
}

}  // namespace openreg
