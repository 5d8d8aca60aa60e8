#include <ATen/NativeFunctions.h>
#include <torch/library.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/core/registry.h"
#include "csrc/aten/forms/boxed.h"

namespace openreg {

// [nested-register] Shapes stay on the host, and a copy may be made there.
// PyTorch's own functions do both, and make new tensors elsewhere. Dropout
// draws numbers, so it goes on to the device's kernel for the buffer. The rest
// are alias kernels.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, library) {
  if (full_operator_set()) {
    using namespace at::native;
    library.impl("_nested_tensor_size", &_nested_tensor_size);
    library.impl("_nested_tensor_strides", &_nested_tensor_strides);
    library.impl(
        "_nested_tensor_storage_offsets", &_nested_tensor_storage_offsets);
    library.impl("_to_copy", &_to_copy_nested);
    library.impl("copy_", &copy_nested_);
    library.impl("clone", &clone_nested);
    library.impl("empty_like", &empty_like_nested);
    library.impl("ones_like", &ones_like);
    library.impl("_pin_memory", &_pin_memory_nested);
    library.impl("is_pinned", &is_pinned);
    library.impl("native_dropout", &native_dropout_nested);
    register_stream_use(library);
    register_alias_kernels(library, "aten", c10::DispatchKey::NestedTensorCPU);
  }
}
// [/nested-register]

}  // namespace openreg
