#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/boxed.h"

namespace openreg {

constinit const bool has_full_set = true;

// [register-aten] Registers the device's kernels, in an order that matters.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_minimal_set(library);
  if (full_operator_set()) {
    register_zero_tensor(library);
    register_convolution(library);
    register_recurrent(library);
    register_attention(library);
    register_pointwise(library);
    register_item(library);
    register_fills(library);
    register_matmul(library);
    register_reductions(library);
    register_indexing(library);
    // Last, because it fills in what has no kernel yet.
    register_alias_kernels(library, "aten", c10::DispatchKey::CPU);
    register_host_bound(library);
  } else {
    register_host_readers(library);
  }
}
// [/register-aten]

}  // namespace openreg
