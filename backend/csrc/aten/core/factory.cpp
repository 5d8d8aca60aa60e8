#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/accumulate.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/runtime/allocator.h"

// Tensors out of nothing, and tensors that change their size.

namespace openreg {
namespace {

constexpr c10::DispatchKeySet device_keys(c10::DispatchKey::PrivateUse1);

void check_options(
    std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::layout_or_default(layout) == c10::kStrided,
      "openreg: an empty tensor of layout ",
      *layout,
      " is not supported; expected torch.strided");
  TORCH_CHECK(
      !c10::pinned_memory_or_default(pin_memory),
      "Only dense CPU tensors can be pinned");
}

// torch.use_deterministic_algorithms fills what would be left to chance.
bool must_fill() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() &&
         context.deterministicFillUninitializedMemory();
}

at::Tensor fill_if_deterministic(at::Tensor tensor) {
  if (C10_UNLIKELY(must_fill())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

// [factory-empty] The first kernel that a backend needs.
at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  // The allocator allocates on the current device.
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return fill_if_deterministic(
      at::Tensor(
          at::detail::empty_generic(
              size,
              device_allocator(),
              device_keys,
              c10::dtype_or_default(dtype),
              memory_format)));
}
// [/factory-empty]

// [factory-empty-strided] A new tensor with the strides that are asked for.
at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return fill_if_deterministic(
      at::Tensor(
          at::detail::empty_strided_generic(
              size,
              stride,
              device_allocator(),
              device_keys,
              c10::dtype_or_default(dtype))));
}
// [/factory-empty-strided]

// [factory-zero-tensor] A tensor of zeros that takes no memory.
// Forward-mode autograd makes these. PyTorch writes them out before a kernel
// sees one, except for `dot` and `vdot`. The allocator gives no address.
at::Tensor efficient_zero_tensor(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const auto index = c10::device_or_default(device).index();
  at::native::ZeroTensorAllocator allocator(
      c10::Device(c10::kPrivateUse1, index < 0 ? current_device() : index));
  return at::Tensor(
      at::detail::empty_generic(
          size,
          &allocator,
          device_keys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
          c10::dtype_or_default(dtype),
          std::nullopt));
}
// [/factory-zero-tensor]

// Makes a storage at least `bytes` long; the hook copies what was there. It is
// asked before a shape changes, so that a full device leaves the tensor as is.
void grow_storage(const c10::Storage& storage, size_t bytes) {
  if (bytes > storage.nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
  }
}

const at::Tensor& resize_(
    const at::Tensor& self,
    at::IntArrayRef size,
    std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(
      memory_format != at::MemoryFormat::Preserve,
      "Unsupported memory format",
      at::MemoryFormat::Preserve);
  auto& impl = *self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(impl.unsafe_storage().nbytes());
  // [factory-resize] Sets a new shape; the storage grows but never shrinks.
  if (impl.sizes() != size) {
    at::detail::check_size_nonnegative(size);
    if (c10::multiply_integers(size) != 0) {
      grow_storage(
          impl.unsafe_storage(),
          at::detail::computeStorageNbytesContiguous(
              size, impl.dtype().itemsize(), impl.storage_offset()));
    }
    impl.set_sizes_contiguous(size);
  }
  if (memory_format.has_value()) {
    impl.empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(must_fill())) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
  // [/factory-resize]
}

at::Tensor& set_storage(
    at::Tensor& self,
    at::Storage source,
    int64_t storage_offset,
    at::IntArrayRef size,
    at::IntArrayRef stride) {
  at::detail::check_size_nonnegative(size);
  // [factory-set] Gives the tensor another storage.
  const size_t item = self.dtype().itemsize();
  if (source.device() == self.device() && storage_offset >= 0 &&
      c10::multiply_integers(size) != 0) {
    grow_storage(
        source,
        stride.data() == nullptr ? at::detail::computeStorageNbytesContiguous(
                                       size, item, storage_offset)
                                 : at::detail::computeStorageNbytes(
                                       size, stride, item, storage_offset));
  }
  at::native::checkSetStorage(self, source, storage_offset, size, stride);
  auto& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_offset(storage_offset);
  if (stride.data() != nullptr) {
    impl.set_sizes_and_strides(size, stride);
  } else {
    impl.set_sizes_contiguous(size);
  }
  return self;
  // [/factory-set]
}

// [factory-set-whole] Makes a tensor over a whole storage, or an empty one.
at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto items =
      static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {items}, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  const at::Storage none(
      at::Storage::use_byte_size_t(),
      0,
      device_data_ptr(self.device().index(), 0),
      device_allocator(),
      /*resizable=*/true);
  return set_storage(self, none, 0, {0}, {});
}
// [/factory-set-whole]

}  // namespace

// [factory-register] Names as in PyTorch's native_functions.yaml.
void register_factories(torch::Library& library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize_);
  library.impl("set_", &set_nothing);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
}
// [/factory-register]

void register_zero_tensor(torch::Library& library) {
  library.impl("_efficientzerotensor", &efficient_zero_tensor);
}

}  // namespace openreg
