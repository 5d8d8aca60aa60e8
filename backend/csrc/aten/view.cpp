#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "csrc/aten/kernels.h"

// Views only write metadata, so PyTorch's own kernels serve every device whose
// tensors are plain TensorImpls; a backend registers them under its key.

namespace openreg {

// [view-register] Six views; select, transpose and their kin call as_strided.
void register_views(const Registrar& add) {
  add("view", &at::native::view);
  add("as_strided", &at::native::as_strided_tensorimpl);
  add("_reshape_alias", &at::native::_reshape_alias);
  add("unfold", &at::native::unfold);
  add("view_as_real", &at::native::view_as_real);
  add("view_as_complex", &at::native::view_as_complex);
}
// [/view-register]

}  // namespace openreg
