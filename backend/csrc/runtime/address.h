#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/Device.h>

#include "csrc/runtime/device.h"

// From an address to its device, and to the place where kernels find it.
// Addresses alone decide: a tensor made by from_blob carries no context that
// could tell.

namespace openreg {

// Read once, when the library is loaded; all zero when there is no device.
OPENREG_EXPORT extern const orAddressSpace address_space;

// [address-device] An address says whether it is a device's, and whose.
inline bool is_device_address(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - address_space.device_base <
         address_space.device_bytes;
}

// The device that owns a device address.
inline c10::DeviceIndex device_of(const void* address) {
  const auto offset =
      reinterpret_cast<uintptr_t>(address) - address_space.device_base;
  const auto capacity = address_space.device_capacity;
  // Mostly the first device's; a division costs as much as a locked exchange.
  return static_cast<c10::DeviceIndex>(
      C10_LIKELY(offset < capacity) ? 0 : offset / capacity);
}
// [/address-device]

// [address-kernel] Where a kernel looks for what the device calls `address`.
// NULL, the address of an empty block, stays NULL.
template <typename T>
T* to_kernel(T* address) {
  if (address == nullptr) {
    return nullptr;
  }
  return reinterpret_cast<T*>(
      reinterpret_cast<uintptr_t>(address) + address_space.kernel_offset);
}
// [/address-kernel]

// The inverse of to_kernel.
template <typename T>
T* to_device(T* address) {
  if (address == nullptr) {
    return nullptr;
  }
  return reinterpret_cast<T*>(
      reinterpret_cast<uintptr_t>(address) - address_space.kernel_offset);
}

}  // namespace openreg
