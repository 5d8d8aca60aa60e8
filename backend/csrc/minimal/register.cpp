#include "csrc/aten/core/kernels.h"

namespace openreg {

constinit const bool has_full_set = false;

// [register-alone] All that a first backend registers under its key.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_minimal_set(library);
  register_host_readers(library);
}
// [/register-alone]

}  // namespace openreg
