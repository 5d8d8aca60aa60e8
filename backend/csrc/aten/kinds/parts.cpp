#include "csrc/aten/kinds/parts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>

namespace openreg {
namespace {

using at::native::NestedTensorImpl;

const c10::DispatchKeySet kinds(
    {c10::DispatchKey::Sparse,
     c10::DispatchKey::SparseCsr,
     c10::DispatchKey::Quantized,
     c10::DispatchKey::NestedTensor});

// [parts-keys] A dispatch key combines a tensor's kind with its backend.
c10::DispatchKeySet keys_on(const at::Tensor& tensor, c10::Device device) {
  const auto backend = device.is_cpu() ? c10::BackendComponent::CPUBit
                                       : c10::BackendComponent::PrivateUse1Bit;
  return (tensor.key_set() & kinds) | c10::DispatchKeySet(backend);
}
// [/parts-keys]

void assign_sparse(
    const at::Tensor& to, const at::Tensor& from, ChangeSides change) {
  if (from.layout() == at::kSparse) {
    // [parts-sparse] The parts of a COO tensor: indices and values.
    const auto* const source = at::sparse::get_sparse_impl(from);
    auto* const target = at::sparse::get_sparse_impl(to);
    target->raw_resize_(
        source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(
        change(source->indices()), change(source->values()));
    target->set_coalesced(source->coalesced());
    // [/parts-sparse]
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
  const auto keys = keys_on(tensor, device);
  const auto result =
      tensor.layout() == at::kSparse
          ? at::detail::make_tensor<at::SparseTensorImpl>(keys, tensor.dtype())
          : at::detail::make_tensor<at::SparseCsrTensorImpl>(
                keys, device, tensor.layout(), tensor.dtype());
  assign_sparse(result, tensor, change);
  return result;
}

void restride(const at::Tensor& to, const at::Tensor& from) {
  const auto* const source = from.unsafeGetTensorImpl();
  to.unsafeGetTensorImpl()->set_sizes_and_strides(
      source->sizes(), source->strides(), source->storage_offset());
}

// [parts-quantized] The codes of a quantized tensor, and its quantizer.
void assign_quantized(
    const at::Tensor& to, const at::Tensor& from, ChangeSides change) {
  restride(to, from);
  at::set_quantizer_(to, change_quantizer(from.quantizer(), change));
}

at::Tensor make_quantized(
    const at::Tensor& tensor, c10::Device device, ChangeSides change) {
  const auto result = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(change(codes_of(tensor)).storage()),
      keys_on(tensor, device),
      tensor.dtype(),
      change_quantizer(tensor.quantizer(), change));
  restride(result, tensor);
  return result;
}
// [/parts-quantized]

// [parts-nested] A nested tensor is one buffer; its offsets are on the host.
// The keys are the buffer's with one half exchanged, and autograd's own key.
at::Tensor make_nested(const at::Tensor& tensor, ChangeSides change) {
  const auto* const nested = at::native::get_nested_tensor_impl(tensor);
  return at::detail::make_tensor<NestedTensorImpl>(
      change(nested->get_unsafe_storage_as_tensor()),
      nested->get_nested_sizes(),
      nested->get_nested_strides(),
      nested->get_storage_offsets());
}
// [/parts-nested]

}  // namespace

bool has_parts(const at::Tensor& tensor) {
  return tensor.key_set().has_any(kinds);
}

at::Tensor codes_of(const at::Tensor& quantized) {
  const auto type = quantized.scalar_type();
  const auto& storage = quantized.storage();
  const auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage),
      c10::DispatchKeySet(
          quantized.device().is_cpu() ? c10::DispatchKey::CPU
                                      : c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(c10::toUnderlying(type)));
  if (type == at::kQUInt4x2 || type == at::kQUInt2x4) {
    result.unsafeGetTensorImpl()->set_sizes_contiguous(
        static_cast<int64_t>(storage.nbytes()));
  } else {
    restride(result, quantized);
  }
  return result;
}

// [parts-quantizer] A quantizer holds two numbers, or two tensors of them.
at::QuantizerPtr change_quantizer(
    const at::QuantizerPtr& quantizer, ChangeSides change) {
  const auto* const channels =
      dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
  return channels == nullptr ? quantizer
                             : at::make_per_channel_affine_quantizer(
                                   change(channels->scales()),
                                   change(channels->zero_points()),
                                   channels->axis(),
                                   quantizer->scalar_type());
}
// [/parts-quantizer]

at::Tensor make_of_parts(
    const at::Tensor& tensor, c10::Device device, ChangeSides change) {
  return tensor.is_quantized() ? make_quantized(tensor, device, change)
         : tensor.is_nested()  ? make_nested(tensor, change)
                               : make_sparse(tensor, device, change);
}

// A nested tensor never changes its shape, and its buffer is assigned with
// other storages.
void assign_parts(
    const at::Tensor& to, const at::Tensor& from, ChangeSides change) {
  if (from.is_quantized()) {
    assign_quantized(to, from, change);
  } else if (!from.is_nested()) {
    assign_sparse(to, from, change);
  }
}

}  // namespace openreg
