#include <ATen/NativeFunctions.h>
#include <ATen/core/Tensor.h>

#include "csrc/aten/core/kernels.h"

// Views only write metadata, so PyTorch's own kernels serve every device whose
// tensors are plain TensorImpls; a backend registers them under its key.

namespace openreg {
namespace {

bool is_dense(const at::Tensor& tensor) {
  return (tensor.is_cpu() || tensor.is_privateuseone()) &&
         tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense));
}

// [view-shallow-copy] Lets a tensor take the data of one on another device.
// Module.to() asks this. Unless it hears yes, each parameter becomes a new
// object: an optimizer keeps the old ones, and tied weights come apart.
bool has_compatible_shallow_copy_type(
    const at::Tensor& self, const at::Tensor& from) {
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(
             from.key_set());
}
// [/view-shallow-copy]

}  // namespace

// [view-register] Six views; others, such as select, call as_strided.
void register_views(torch::Library& library) {
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl(
      "_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}
// [/view-register]

}  // namespace openreg
