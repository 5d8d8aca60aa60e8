#include "csrc/aten/sparse.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_mm_reduce_impl.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <torch/library.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/boxed.h"
#include "csrc/aten/registry.h"

namespace openreg {
namespace {

using c10::DispatchKey;

c10::DispatchKeySet keys_of(at::Layout layout, c10::Device device) {
  const bool cpu = device.is_cpu();
  if (layout == at::kSparse) {
    return c10::DispatchKeySet(
        cpu ? DispatchKey::SparseCPU : DispatchKey::SparsePrivateUse1);
  }
  return c10::DispatchKeySet(
      cpu ? DispatchKey::SparseCsrCPU : DispatchKey::SparseCsrPrivateUse1);
}

}  // namespace

bool is_sparse(at::Layout layout) {
  return layout == at::kSparse || layout == at::kSparseCsr ||
         layout == at::kSparseCsc || layout == at::kSparseBsr ||
         layout == at::kSparseBsc;
}

// [sparse-parts] The same tensor on the other side, part by part.
void assign_sparse(
    const at::Tensor& to, const at::Tensor& from, ChangeSides change) {
  if (from.layout() == at::kSparse) {
    const auto* const source = at::sparse::get_sparse_impl(from);
    auto* const target = at::sparse::get_sparse_impl(to);
    target->raw_resize_(
        source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(
        change(source->indices()), change(source->values()));
    target->set_coalesced(source->coalesced());
  } else {
    const auto* const source = at::sparse_csr::get_sparse_csr_impl(from);
    at::sparse_csr::get_sparse_csr_impl(to)->set_member_tensors(
        change(source->compressed_indices()),
        change(source->plain_indices()),
        change(source->values()),
        source->sizes());
  }
}

at::Tensor make_sparse(
    const at::Tensor& tensor, c10::Device device, ChangeSides change) {
  const auto layout = tensor.layout();
  const auto keys = keys_of(layout, device);
  const auto result =
      layout == at::kSparse
          ? at::detail::make_tensor<at::SparseTensorImpl>(keys, tensor.dtype())
          : at::detail::make_tensor<at::SparseCsrTensorImpl>(
                keys, device, layout, tensor.dtype());
  assign_sparse(result, tensor, change);
  return result;
}
// [/sparse-parts]

// Keeps which entries an `amax` is made of only if somebody wants a gradient,
// which it asks of its arguments. An alias does not say by itself.
static std::tuple<at::Tensor, at::Tensor> mm_reduce(
    const at::Tensor& self, const at::Tensor& other, c10::string_view reduce) {
  CommonDevice common;
  common.add(self);
  common.add(other);
  return run_on_aliases("mm_reduce", common.index(), [&](auto&& alias) {
    const auto wanted = [&](const at::Tensor& tensor) {
      return alias(tensor).set_requires_grad(tensor.requires_grad());
    };
    return at::_sparse_mm_reduce_impl(wanted(self), wanted(other), reduce);
  });
}

// [sparse-register] The same kernels again, under the keys of the layouts.
// A copy may have its other end on the host; PyTorch's own copies part by part.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  if (full_operator_set()) {
    library.impl("copy_", &at::native::copy_sparse_wrapper_);
    library.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
    register_alias_kernels(library, DispatchKey::SparseCPU);
  }
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  if (full_operator_set()) {
    library.impl("copy_", &at::native::copy_sparse_compressed_);
    library.impl("_sparse_mm_reduce_impl", &mm_reduce);
    register_alias_kernels(library, DispatchKey::SparseCsrCPU);
  }
}
// [/sparse-register]

}  // namespace openreg
