#include "csrc/runtime/address.h"

namespace openreg {

// A constant of the process, so that a kernel finds its data by one addition.
const orAddressSpace address_space = [] {
  orAddressSpace space{};
  // On failure all stays zero, and initialize() is the one to say why.
  const bool known = orGetAddressSpace(&space) == orSuccess;
  return known ? space : orAddressSpace{};
}();

}  // namespace openreg
