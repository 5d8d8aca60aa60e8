#include <ATen/NativeFunctions.h>
#include <ATen/ops/_sparse_mm_reduce_impl.h>
#include <torch/library.h>

#include "csrc/aten/core/registry.h"
#include "csrc/aten/forms/alias.h"
#include "csrc/aten/forms/boxed.h"

namespace openreg {

// Keeps which entries an `amax` is made of only if somebody wants a gradient,
// which it asks of its arguments. An alias does not say by itself.
static std::tuple<at::Tensor, at::Tensor> mm_reduce(
    const at::Tensor& self, const at::Tensor& other, c10::string_view reduce) {
  return launch_on_aliases(
      {common_device(self, other), "aten::_sparse_mm_reduce_impl"},
      [&](const at::Tensor& a, const at::Tensor& b) {
        a.set_requires_grad(self.requires_grad());
        b.set_requires_grad(other.requires_grad());
        return at::_sparse_mm_reduce_impl(a, b, reduce);
      },
      self,
      other);
}

// [sparse-register] The same kernels again, under the keys of the layouts.
// Copies may have their other end on the host, and a tensor like another may be
// made elsewhere. PyTorch's own functions do both, part by part.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  if (full_operator_set()) {
    using namespace at::native;
    library.impl("copy_", &copy_sparse_wrapper_);
    library.impl("copy_sparse_to_sparse_", &copy_sparse_);
    library.impl("empty_like", &empty_like_sparse_coo);
    library.impl("_pin_memory", &_pin_memory_sparse_coo);
    library.impl("is_pinned", &is_pinned_sparse_coo);
    register_alias_kernels(library, "aten", c10::DispatchKey::SparseCPU);
  }
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  if (full_operator_set()) {
    using namespace at::native;
    library.impl("copy_", &copy_sparse_compressed_);
    library.impl("empty_like", &empty_like_sparse_csr);
    library.impl("_pin_memory", &_pin_memory_sparse_compressed);
    library.impl("is_pinned", &is_pinned_sparse_compressed);
    library.impl("_sparse_mm_reduce_impl", &mm_reduce);
    register_alias_kernels(library, "aten", c10::DispatchKey::SparseCsrCPU);
  }
}
// [/sparse-register]

}  // namespace openreg
