#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "csrc/runtime/device.h"

// The CPU fallback: an operator without a kernel for the device runs on the
// host, on copies. It works, it is slow, so it is counted, and it can be made
// to warn or to refuse.

namespace openreg {

enum class FallbackMode { allow, warn, forbid };

// What the next fallbacks do: run quietly, warn once an operator, or raise.
OPENREG_EXPORT FallbackMode set_fallback_mode(FallbackMode mode);
OPENREG_EXPORT FallbackMode fallback_mode();

// Calls by operator, such as {"aten::foo", 3}, since the last reset.
OPENREG_EXPORT std::map<std::string, int64_t> fallback_counts();

// Empties the counts, and lets every operator warn once more.
OPENREG_EXPORT void reset_fallback_counts();

} // namespace openreg
