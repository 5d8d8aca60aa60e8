#pragma once

#include <string_view>
#include <utility>

#include <torch/library.h>

#include "csrc/runtime/device.h"

// Registration that tests can thin out: OPENREG_OPERATORS=minimal leaves the
// minimal set and the copying fallback, OPENREG_OMIT=<operator> one kernel
// less. So a test can show what each row of the minimal set is for.

namespace openreg {

// Whether this build has more than the minimal set; its register.cpp knows.
extern const bool has_full_set;

// False when OPENREG_OPERATORS asks for the minimal set only.
bool full_operator_set();

// True when OPENREG_OMIT names this kernel, such as "empty.memory_format".
bool omitted(std::string_view name);

// Raises when one of the two variables has a value that means nothing. The
// registrations cannot say so themselves: an exception out of a static
// initializer ends the process.
OPENREG_EXPORT void check_registration();

// Registers kernels with `library` unless they are omitted.
class Registrar {
 public:
  explicit Registrar(torch::Library& library) : library_(library) {}

  template <typename Kernel>
  void operator()(const char* name, Kernel&& kernel) const {
    if (!omitted(name)) {
      library_.impl(name, std::forward<Kernel>(kernel));
    }
  }

 private:
  torch::Library& library_;
};

}  // namespace openreg
