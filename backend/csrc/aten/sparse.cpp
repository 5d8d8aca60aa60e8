#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <torch/library.h>

#include "csrc/aten/boxed.h"
#include "csrc/aten/registry.h"

namespace openreg {

// [sparse-register] The same kernels again, under the keys of the layouts.
// A copy may have its other end on the host; PyTorch's own copies part by part.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  if (full_operator_set()) {
    library.impl("copy_", &at::native::copy_sparse_wrapper_);
    library.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
    register_alias_kernels(library, "aten", c10::DispatchKey::SparseCPU);
  }
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  if (full_operator_set()) {
    library.impl("copy_", &at::native::copy_sparse_compressed_);
    register_alias_kernels(library, "aten", c10::DispatchKey::SparseCsrCPU);
  }
}
// [/sparse-register]

}  // namespace openreg
