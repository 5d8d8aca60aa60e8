#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "csrc/runtime/device.h"

// The CPU fallback: an operator without a kernel for the device runs on the
// host, on copies. It works, it is slow, so it is counted, and it can be made
// to warn or to refuse, for all operators or for those that are named.

namespace openreg {

// What a fallback does: "allow" runs it, "warn" warns once an operator,
// "forbid" raises. First the word for operators that the map does not name; in
// the map "aten::foo.out" is one operator and "aten::foo" all of that name.
using FallbackPolicy =
    std::pair<std::string, std::map<std::string, std::string>>;

// Raises for any other word.
OPENREG_EXPORT void set_fallback_policy(const FallbackPolicy& policy);
OPENREG_EXPORT FallbackPolicy fallback_policy();

// Calls by operator, such as {"aten::foo", 3}, since the last reset.
OPENREG_EXPORT std::map<std::string, int64_t> fallback_counts();

// Empties the counts, and lets every operator warn once more.
OPENREG_EXPORT void reset_fallback_counts();

}  // namespace openreg
