#include <algorithm>

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/address.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

// What PyTorch's device-independent code asks a backend, one method a
// question. The answers are the runtime's functions.

namespace openreg {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  // [hooks-init] Runs at the first Python call that needs a device.
  void init() const override {
    initialize();
  }
  // [/hooks-init]

  // [hooks-primary-context] A device is active once the backend is initialized.
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    check_device(device);
    return is_initialized();
  }
  // [/hooks-primary-context]

  // [hooks-available] Built in, and available if a device is; never throws.
  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return device_count() > 0;
  }
  // [/hooks-available]

  // [hooks-device] The same device functions, for code of every accelerator.
  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }

  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_device(device);
  }

  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return maybe_exchange_device(device);
  }
  // [/hooks-device]

  // [hooks-default-generator] Returns the generator that the runtime keeps.
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  // [/hooks-default-generator]

  // [hooks-new-generator] torch.Generator(device="openreg") comes here.
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(device);
  }
  // [/hooks-new-generator]

  // [hooks-device-from-ptr] The device is found from the address alone.
  at::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(
        is_device_address(data),
        "The address ",
        data,
        " is host memory, not memory of an openreg device.");
    return at::Device(at::kPrivateUse1, device_of(data));
  }
  // [/hooks-device-from-ptr]

  // [hooks-pinned] Host memory that the device can reach.
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    return host_allocator();
  }
  // [/hooks-pinned]

  // [hooks-resize] untyped_storage().resize_(): new memory, the old bytes.
  void resizePrivateUse1Bytes(
      const c10::Storage& storage, size_t bytes) const override {
    TORCH_CHECK(
        storage.resizable(), "Trying to resize storage that is not resizable");
    const c10::DeviceGuard guard(storage.device());
    auto data = device_data_ptr(storage.device().index(), bytes);
    const size_t kept = std::min(storage.nbytes(), bytes);
    if (kept > 0) {
      OPENREG_CHECK_WAIT(orMemcpyAsync(
          data.get(),
          storage.data(),
          kept,
          orMemcpyDeviceToDevice,
          current_stream(storage.device().index())));
    }
    // It has parted from its lazy clones.
    storage.unsafeGetStorageImpl()->clear_materializer();
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
  // [/hooks-resize]
};

// [hooks-register] One object, registered when the library is loaded.
[[maybe_unused]] const bool registered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();
// [/hooks-register]

}  // namespace
}  // namespace openreg
