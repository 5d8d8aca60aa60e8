#include "csrc/aten/boxed.h"
#include "csrc/aten/kernels.h"

namespace openreg {

constinit const bool has_full_set = true;

// [register-aten] One block says what runs on the device, in order.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  const Registrar add(library);
  register_minimal_set(add);
  if (full_operator_set()) {
    register_zero_tensor(add);
    register_shallow_copy(add);
    register_convolution(add);
    register_recurrent(add);
    register_attention(add);
    register_dropout_backward(add);
    register_pointwise(add);
    register_item(add);
    register_fills(add);
    register_matmul(add);
    register_reductions(add);
    register_indexing(add);
    // Last, because it fills in what has no kernel yet.
    register_alias_kernels(library, "aten", c10::DispatchKey::CPU);
    register_host_bound(library);
  }
}
// [/register-aten]

}  // namespace openreg
