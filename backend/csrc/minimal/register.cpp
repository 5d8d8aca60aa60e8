#include "csrc/aten/core/kernels.h"

namespace openreg {

constinit const bool has_full_set = false;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_minimal_set(library);
  register_host_readers(library);
}

}  // namespace openreg
