#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "csrc/runtime/device.h"

// The CPU fallback: an operator without a kernel for the device runs on the
// host, on copies. It works, it is slow, so it is counted, and it can be made
// to warn or to refuse.

namespace openreg {

// What the next fallbacks do: "allow" runs them, "warn" warns once an operator,
// "forbid" raises. Returns the mode that was; raises for any other word.
OPENREG_EXPORT std::string set_fallback_mode(const std::string& mode);

// Calls by operator, such as {"aten::foo", 3}, since the last reset.
OPENREG_EXPORT std::map<std::string, int64_t> fallback_counts();

// Empties the counts, and lets every operator warn once more.
OPENREG_EXPORT void reset_fallback_counts();

}  // namespace openreg
