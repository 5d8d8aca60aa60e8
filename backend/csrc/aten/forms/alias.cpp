#include "csrc/aten/forms/alias.h"

#include <regex>

#include <ATen/TensorUtils.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "csrc/aten/core/copy_elements.h"
#include "csrc/aten/kinds/parts.h"
#include "csrc/graph/capture.h"
#include "csrc/runtime/allocator.h"

namespace openreg {
namespace {

// Where the kernel that this thread runs allocates.
thread_local c10::DeviceIndex kernel_memory = host_memory;
// How large its only result is, or SIZE_MAX where it may have others.
thread_local size_t only_result = SIZE_MAX;

bool is_kernel_address(const void* address) {
  return address != nullptr && is_device_address(to_device(address));
}

// [alias-in-turn] Memory allocated during a turn must have no other user.
// Another thread that launched behind this turn may have freed a block that
// its queued work still uses. That is safe for what is launched later, but not
// for us. With work waiting behind, or memory that only waiting could free, the
// answer is NULL: the host's memory serves, and `adopt` copies its bytes in the
// stream's order.
void* allocate_in_turn(c10::DeviceIndex device, size_t bytes) {
  void* const address = device_allocate_in_turn(device, bytes);
  if (C10_UNLIKELY(orStreamQuery(current_stream(device)) != orSuccess)) {
    device_free(address);
    return nullptr;
  }
  return to_kernel(address);
}
// [/alias-in-turn]

// [alias-cpu-allocator] Results of a CPU kernel go straight to device memory.
// This is the emulator's trick, not a vendor's: a real kernel library writes
// to the device because it runs there.
struct KernelAllocator final : c10::Allocator {
  c10::Allocator* const host = c10::GetDefaultCPUAllocator();

  c10::DataPtr allocate(size_t bytes) override {
    const bool workspace = only_result != SIZE_MAX && only_result != bytes;
    void* const address = kernel_memory == host_memory || workspace
                              ? nullptr
                              : allocate_in_turn(kernel_memory, bytes);
    if (address == nullptr) {
      return host->allocate(bytes);
    }
    return {address, address, &free_any, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &free_any;
  }
  void copy_data(void* dst, const void* src, size_t count) const override {
    default_copy_data(dst, src, count);
  }
  static void free_any(void* address);
};
// [/alias-cpu-allocator]

KernelAllocator& kernel_allocator() {
  static auto* const allocator = new KernelAllocator;
  return *allocator;
}

void KernelAllocator::free_any(void* address) {
  if (is_kernel_address(address)) {
    device_free(to_device(address));
  } else if (address != nullptr) {
    kernel_allocator().host->raw_deallocate(address);
  }
}

// Priority 1, because PyTorch's own allocator is registered with 0.
const bool registered = [] {
  c10::SetCPUAllocator(&kernel_allocator(), /*priority=*/1);
  return true;
}();

const c10::DispatchKeySet above_kernels =
    c10::autograd_dispatch_keyset |
    c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) |
    c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);

// [alias-marks] An alias keeps these dispatch keys of its tensor.
// `dot` and `vdot` get zeros without memory, and know them by the last key.
const c10::DispatchKeySet marks(
    {c10::DispatchKey::Conjugate,
     c10::DispatchKey::Negative,
     c10::DispatchKey::ZeroTensor});
// [/alias-marks]

// What no kernel may resize, as it has no allocator.
c10::Storage storage_of(c10::DataPtr data, size_t bytes) {
  return {
      c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, false};
}

at::Tensor make_view(
    c10::Storage storage,
    const at::Tensor& like,
    c10::DispatchKey backend = c10::DispatchKey::CPU) {
  const auto* const source = like.unsafeGetTensorImpl();
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(backend) | (source->key_set() & marks),
      like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      source->sizes(), source->strides(), source->storage_offset());
  return tensor;
}

}  // namespace

// [alias-borrow] Makes an alias that does not own its memory.
at::Tensor borrow(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) {
    return tensor;
  }
  const auto& storage = tensor.storage();
  void* const address = to_kernel(const_cast<void*>(storage.data()));
  return make_view(storage_of({address, c10::kCPU}, storage.nbytes()), tensor);
}
// [/alias-borrow]

// No allocator tells a profile of the copy of a number: it would see memory
// that the caller takes and, as the stream's thread frees it, nobody returns.
at::Tensor own(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_privateuseone()) {
    note_use(tensor.device().index(), tensor.storage());
  }
  if (!tensor.defined() || !tensor.is_cpu() || tensor._is_zerotensor()) {
    return borrow(tensor);
  }
  TORCH_INTERNAL_ASSERT(tensor.dim() == 0);
  const size_t bytes = tensor.element_size();
  void* const copy = c10::alloc_cpu(bytes);
  std::memcpy(copy, tensor.const_data_ptr(), bytes);
  auto result = make_view(
      storage_of({copy, copy, &c10::free_cpu, c10::kCPU}, bytes), tensor);
  auto* const number = result.unsafeGetTensorImpl();
  number->set_storage_offset(0);
  number->set_wrapped_number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
  return result;
}

KernelScope::KernelScope(c10::DeviceIndex memory)
    : previous_(std::exchange(kernel_memory, memory)),
      below_autograd_(above_kernels) {}

KernelScope::~KernelScope() {
  kernel_memory = previous_;
}

OneResult::OneResult(size_t bytes) {
  only_result = bytes;
}

OneResult::~OneResult() {
  only_result = SIZE_MAX;
}

// [alias-refusal] Rewrites a kernel's error so that it names the operator.
// Where a message speaks of the CPU as of where the tensors are, it is
// rewritten as well: "on CPU" and "CPUBoolType".
void name_operator(
    const c10::Error& error, std::string_view name, c10::DeviceIndex device) {
  const c10::Device here(c10::kPrivateUse1, device);
  const std::string refuses = "\" not implemented for ";
  const auto& said = error.msg();
  const auto found = said.find(refuses);
  TORCH_CHECK_NOT_IMPLEMENTED(
      found == std::string::npos,
      "openreg: '",
      name.substr(0, name.find('.')),
      "' is not implemented for ",
      said.substr(found + refuses.size()),
      " on ",
      here);
  auto says =
      std::regex_replace(said, std::regex("\\bon CPU\\b"), "on " + here.str());
  says = std::regex_replace(
      says, std::regex("CPU(?=\\w+Type\\b)"), c10::get_privateuse1_backend());
  TORCH_CHECK(says == said, says);
}
// [/alias-refusal]

// [alias-shadow] A CPU storage over a device storage's bytes.
// Lazy clones share memory until one is written. Asking for a mutable address
// separates them, even if an argument that is only read came first.
const c10::Storage& Aliases::shadow_of(
    const c10::Storage& storage, bool written) {
  void* const address = to_kernel(
      written ? storage.mutable_data() : const_cast<void*>(storage.data()));
  c10::DataPtr data(address, c10::Device(c10::kCPU));
  for (const auto& pair : storages_) {
    if (pair.device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      pair.shadow.set_data_ptr_noswap(std::move(data));
      return pair.shadow;
    }
  }
  auto shadow = storage_of(std::move(data), storage.nbytes());
  shadow.unsafeGetStorageImpl()->set_allocator(&kernel_allocator());
  shadow.unsafeGetStorageImpl()->set_resizable(storage.resizable());
  storages_.push_back({storage, std::move(shadow)});
  return storages_.back().shadow;
}
// [/alias-shadow]

at::Tensor Aliases::alias(const at::Tensor& tensor, bool written) {
  if (!tensor.defined() || !tensor.device().is_privateuseone()) {
    return tensor;
  }
  const auto* known = find(tensor);
  if (known != nullptr && (known->written || !written)) {
    return known->alias;
  }
  const auto part = [&](const at::Tensor& t) { return alias(t, written); };
  auto result = has_parts(tensor)
                    ? make_of_parts(tensor, c10::kCPU, part)
                    : make_view(shadow_of(tensor.storage(), written), tensor);
  if (known == nullptr) {
    tensors_.push_back({tensor, result, written});
    return result;
  }
  auto& pair = *find(tensor);
  pair.written = true;
  return pair.alias;
}

Aliases::TensorPair* Aliases::find(const at::Tensor& tensor) {
  for (auto& pair : tensors_) {
    if (pair.device.is_same(tensor)) {
      return &pair;
    }
  }
  return nullptr;
}

// What a kernel resized is resized on the device too. A solver may also leave
// its result conjugated, as a bit.
static void follow(const at::Tensor& device, const at::Tensor& alias) {
  auto* const impl = device.unsafeGetTensorImpl();
  const auto* const changed = alias.unsafeGetTensorImpl();
  if (impl->sizes() != changed->sizes() ||
      impl->strides() != changed->strides() ||
      impl->storage_offset() != changed->storage_offset()) {
    impl->set_sizes_and_strides(
        changed->sizes(), changed->strides(), changed->storage_offset());
  }
  if (device.is_conj() != alias.is_conj()) {
    device._set_conj(alias.is_conj());
  }
}

// [alias-commit] The device tensor takes over what a kernel did to its alias.
void Aliases::commit() {
  for (auto& [device, shadow] : storages_) {
    auto* const storage = device.unsafeGetStorageImpl();
    if (shadow.data() != to_kernel(storage->data())) {
      const auto adopted = device_storage_of(shadow);
      storage->set_data_ptr_noswap(
          std::move(adopted.unsafeGetStorageImpl()->mutable_data_ptr()));
    }
    if (storage->nbytes() != shadow.nbytes()) {
      storage->set_nbytes(shadow.nbytes());
    }
  }
  // [/alias-commit]
  for (auto& [device, alias, written] : tensors_) {
    if (!written) {
      continue;
    }
    if (has_parts(device)) {
      assign_parts(device, alias, [&](const at::Tensor& changed) {
        auto part = adopt(changed);
        follow(part, changed);
        return part;
      });
    } else {
      follow(device, alias);
    }
  }
}

// Takes the memory of a CPU storage over. Memory that a kernel got elsewhere,
// on a helper thread for instance, is copied into the device.
c10::Storage Aliases::device_storage_of(const c10::Storage& storage) {
  auto* const impl = storage.unsafeGetStorageImpl();
  void* const address = impl->mutable_data();
  const size_t bytes = impl->nbytes();
  const auto device = c10::Device(c10::kPrivateUse1, device_);
  c10::DataPtr data;
  if (address == nullptr) {
    data = c10::DataPtr(nullptr, device);
  } else if (
      is_kernel_address(address) && impl->mutable_data_ptr().get_context()) {
    data = c10::DataPtr(
        to_device(address), to_device(address), &device_free, device);
    impl->mutable_data_ptr().release_context();
  } else {
    data = device_data_ptr(device_, bytes);
    OPENREG_CHECK_WAIT(orMemcpyAsync(
        data.get(),
        address,
        bytes,
        orMemcpyHostToDevice,
        current_stream(device_)));
  }
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      bytes,
      std::move(data),
      device_allocator(),
      /*resizable=*/true);
}

// What has no parts has to be plain memory, nothing opaque.
at::Tensor Aliases::adopt(const at::Tensor& result) {
  if (!result.defined()) {
    return result;
  }
  for (const auto& [device, alias, written] : tensors_) {
    if (alias.is_same(result)) {
      return device;
    }
  }
  if (has_parts(result)) {
    return make_of_parts(
        result,
        c10::Device(c10::kPrivateUse1, device_),
        [&](const at::Tensor& t) { return adopt(t); });
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      result.layout() == c10::kStrided,
      "openreg: results of layout ",
      result.layout(),
      " and dtype ",
      result.scalar_type(),
      " are not supported");
  // [alias-adopt] Results become device tensors without a copy.
  const auto& storage = result.storage();
  for (const auto& [device, shadow] : storages_) {
    if (shadow.is_alias_of(storage)) {
      return make_view(device, result, c10::DispatchKey::PrivateUse1);
    }
  }
  // Another result may share this storage, so it is remembered.
  storages_.push_back({device_storage_of(storage), storage});
  return make_view(
      storages_.back().device, result, c10::DispatchKey::PrivateUse1);
  // [/alias-adopt]
}

}  // namespace openreg
