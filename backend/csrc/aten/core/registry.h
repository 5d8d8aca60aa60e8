#pragma once

#include "csrc/runtime/device.h"

// OPENREG_OPERATORS=minimal registers the minimal set and the copying fallback
// only, to show how far they carry.

namespace openreg {

// Whether this build has more than the minimal set; its register.cpp knows.
extern const bool has_full_set;

// False when OPENREG_OPERATORS asks for the minimal set only.
bool full_operator_set();

// Raises when OPENREG_OPERATORS has a value that means nothing. The
// registrations cannot say so themselves: an exception out of a static
// initializer ends the process.
OPENREG_EXPORT void check_registration();

}  // namespace openreg
