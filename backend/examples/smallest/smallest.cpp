// The smallest backend, C++ side: two devices of the kind "tiny".
// smallest.py compiles and loads this file, and does the rest.

// [smallest-headers] What the listings below include, and short names.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/strides.h>
#include <torch/library.h>

namespace {

using at::IntArrayRef;
using at::Tensor;
using std::optional;

constexpr auto tiny = c10::DeviceType::PrivateUse1;
// [/smallest-headers]

// [smallest-driver] What the vendor has; put your driver's calls here.
constexpr int device_count = 2;
thread_local c10::DeviceIndex current = 0;

void* driver_malloc(size_t bytes) {
  return std::malloc(bytes);
}

void driver_free(void* address) {
  std::free(address);
}

// To the device, from it, or on it; returns when it is done.
void driver_copy(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
// [/smallest-driver]

// [smallest-allocator] Memory of the current device.
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* const address = bytes == 0 ? nullptr : driver_malloc(bytes);
    TORCH_CHECK_WITH(
        OutOfMemoryError, address != nullptr || bytes == 0, "tiny is full");
    return {address, address, &driver_free, c10::Device(tiny, current)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    driver_copy(to, from, bytes);
  }
};
// [/smallest-allocator]

// [smallest-guard] Which device is current, and which stream: always the same.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return tiny;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count;
  }
  c10::Device getDevice() const override {
    return {tiny, current};
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(
        0 <= device.index() && device.index() < device_count,
        "There is no ",
        device);
    current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(
        c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
};
// [/smallest-guard]

// [smallest-hooks] What PyTorch's core asks; the other methods have defaults.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  void resizePrivateUse1Bytes(
      const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto data = storage.allocator()->allocate(bytes);
    driver_copy(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};
// [/smallest-hooks]

// [smallest-create] Shape, strides and dtype are PyTorch's, the memory is ours.
constexpr c10::DispatchKeySet key(c10::DispatchKey::PrivateUse1);

Tensor empty(
    IntArrayRef size,
    optional<at::ScalarType> dtype,
    optional<at::Layout>,
    optional<at::Device> device,
    optional<bool>,
    optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return Tensor(
      at::detail::empty_generic(
          size,
          c10::GetAllocator(tiny),
          key,
          c10::dtype_or_default(dtype),
          format));
}

Tensor empty_strided(
    IntArrayRef size,
    IntArrayRef stride,
    optional<at::ScalarType> dtype,
    optional<at::Layout>,
    optional<at::Device> device,
    optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return Tensor(
      at::detail::empty_strided_generic(
          size,
          stride,
          c10::GetAllocator(tiny),
          key,
          c10::dtype_or_default(dtype)));
}
// [/smallest-create]

// [smallest-copy] The driver copies bytes; the CPU's copy does the rest.
Tensor on_host(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  const Tensor twin = at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  driver_copy(
      twin.mutable_data_ptr(),
      tensor.const_data_ptr(),
      twin.storage().nbytes());
  twin._set_conj(tensor.is_conj());
  twin._set_neg(tensor.is_neg());
  return twin;
}

Tensor copy_from(const Tensor& self, const Tensor& target, bool) {
  const Tensor twin = on_host(target).copy_(on_host(self));
  if (!target.is_cpu()) {
    driver_copy(
        target.mutable_data_ptr(),
        twin.const_data_ptr(),
        twin.storage().nbytes());
  }
  return target;
}

// The fallback's way back; a result given as out= may get its shape here.
Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  if (target.sizes() != self.sizes()) {
    target.resize_(self.sizes());
    target.unsafeGetTensorImpl()->set_sizes_and_strides(
        self.sizes(), self.strides());
  }
  return copy_from(self, target, false);
}
// [/smallest-copy]

// [smallest-storage] Resizes a tensor, or gives it another storage.
const Tensor& resize(
    const Tensor& self, IntArrayRef size, optional<at::MemoryFormat> format) {
  auto& impl = *self.unsafeGetTensorImpl();
  if (impl.sizes() != size) {
    const size_t bytes = at::detail::computeStorageNbytesContiguous(
        size, self.itemsize(), self.storage_offset());
    if (bytes > self.storage().nbytes()) {
      at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(
          self.storage(), bytes);
    }
    impl.set_sizes_contiguous(size);
  }
  if (format.has_value()) {
    impl.empty_tensor_restride(*format);
  }
  return self;
}

Tensor& set_storage(
    Tensor& self,
    at::Storage source,
    int64_t offset,
    IntArrayRef size,
    IntArrayRef stride) {
  const bool given = stride.data() != nullptr;
  const auto dense = c10::contiguous_strides(size);
  const IntArrayRef strides = given ? stride : IntArrayRef(dense);
  const size_t bytes =
      at::detail::computeStorageNbytes(size, strides, self.itemsize(), offset);
  TORCH_CHECK(bytes <= source.nbytes(), "The storage is too small.");
  at::native::checkSetStorage(self, source, offset, size, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, strides);
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  const auto items = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {items}, {1});
}
// [/smallest-storage]

// [smallest-fallback] Every other operator runs on the host, on copies.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}
// [/smallest-fallback]

// [smallest-register] All of the above, registered when the file is loaded.
const bool registered = [] {
  c10::SetAllocator(tiny, new Allocator);
  c10::impl::registerDeviceGuard(tiny, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
}
// [/smallest-register]

// [smallest-register-rest] The fallback; conjugates are copied as they are.
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY(tiny, library) {
  library.def("device_count() -> int", [] { return int64_t{device_count}; });
}
// [/smallest-register-rest]

}  // namespace

// expect: ok
